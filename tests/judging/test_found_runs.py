"""`judge` over folders as people have them: the framework, the planned steps, and what is said of a lack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobspec import frameworks
from jobspec.cli import main
from jobspec.evidence.evidence import Evidence
from jobspec.finding import JobspecError
from jobspec.judging.foreign_run import expected, judge_files
from jobspec.judging.which_framework import framework_of, which_framework
from jobspec.verdict import Deliverable, Result, Status, Verdict
from tests.kits.found_runs import (
    END,
    FOUND_RUNS,
    GRPO,
    HEAD,
    TOTAL,
    FoundRun,
    bar,
    logged,
    trainer_state,
    verl_new,
)
from tests.kits.found_runs_more import MORE_FOUND_RUNS
from tests.kits.found_runs_third import THIRD_FOUND_RUNS

FIXTURES = Path(__file__).parents[1] / "fixtures"
CRASH = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\nValueError: odd shape\n'


def judged(
    place: Path,
    framework: str = "trl",
    level: str = "smoke",
    learning: str = "",
    *requirements: str,
    steps: int = 0,
) -> tuple[Evidence, Verdict]:
    return judge_files(
        place, expected(frameworks.get(framework), level, (), steps, requirements, learning, ())
    )


def item(verdict: Verdict, name: str) -> Deliverable:
    found = verdict.deliverable(name)
    assert found is not None
    return found


# -- which framework ---------------------------------------------------------------------------------


@pytest.mark.parametrize("run", (*FOUND_RUNS, *MORE_FOUND_RUNS, *THIRD_FOUND_RUNS), ids=lambda run: run.name)
def test_files_name_their_framework(run: FoundRun, tmp_path: Path) -> None:
    run.write(tmp_path)
    if run.frameworks:
        assert (which_framework(tmp_path)[0].name,) == run.frameworks
    else:
        assert unknown(tmp_path)


def test_two_frameworks_are_both_named(tmp_path: Path) -> None:
    verl_new().write(tmp_path / "a")
    (tmp_path / "b.log").write_text(GRPO)
    with pytest.raises(JobspecError) as raised:
        which_framework(tmp_path)
    text = str(raised.value) + str(raised.value.findings[0].why)
    assert "fit 2 frameworks" in text and "trl: `trl/trainer/` in b.log:1" in text and "a/log:1" in text


def test_rlix_drives_nemo_rl(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("[RLIX_HOOK ft_0a] x\nimport nemo_rl.algorithms.grpo\n")
    assert which_framework(tmp_path)[0].name == "rlix"


def test_configuration_class_of_nemo_rl_is_no_sign_of_trl(tmp_path: Path) -> None:
    """Both have a `GRPOConfig`."""
    (tmp_path / "x.log").write_text(
        "import nemo_rl.algorithms\nMasterConfig(policy={}, grpo=GRPOConfig(n=2))\n"
    )
    assert which_framework(tmp_path)[0].name == "nemo_rl"


@pytest.mark.parametrize(
    ("fixture", "name"),
    [
        ("nemo_rl_log_example.txt", "nemo_rl"), ("nemo_rl_metrics_example.json", "nemo_rl"),
        ("verl_log_example.txt", "verl"), ("verl_log_example_legacy.txt", "verl"),
        ("verl_file_logger_example.jsonl", "verl"), ("rlix_log_made.txt", "rlix"),
    ],
)  # fmt: skip
def test_real_files_name_their_framework(fixture: str, name: str) -> None:
    assert which_framework(FIXTURES / fixture)[0].name == name


def test_part_of_a_longer_word_is_no_sign(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text(
        "max_completion_length: 512, /src/my-trl/trainer/x.py, ctrl/trainer/y.py\n"
    )
    assert unknown(tmp_path)


def test_a_metric_that_is_to_move_is_judged_of_any_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"step": step, "loss": 2 - step / 40 + step % 3 / 50} for step in range(1, 41)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "train.log").write_text("done\nexit code 0\n")
    assert main(["judge", str(tmp_path), "--level", "2", "--learning", "loss", "--steps", "40"]) == 0
    assert "judged as command" in capsys.readouterr().out
    with pytest.raises(JobspecError, match="jobspec found no sign of a framework"):
        framework_of(tmp_path, "checkpoint", learning=True)


def unknown(folder: Path) -> bool:
    """Whether the folder's files show no framework: then `command` judges them."""
    return framework_of(folder)[0].name == "command"


def test_report_says_that_the_framework_is_inferred(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = next(run for run in FOUND_RUNS if run.name == "trl-0.17")
    assert main(["judge", str(run.write(tmp_path))]) == 0
    assert "that `trl` ran is inferred from `trl/trainer/` in slurm-77.out:3" in capsys.readouterr().out


def test_inferred_steps_are_said_to_be(tmp_path: Path) -> None:
    text = "the steps of values in train.log are inferred, from a progress bar, their order or"
    text += " a file with the same values"
    (tmp_path / "train.log").write_text("".join(f"{bar(s, 3)}\n{logged(s)}\n" for s in (1, 2, 3)))
    assert text in judged(tmp_path)[1].limitations
    (tmp_path / "trainer_state.json").write_text(trainer_state(3))
    assert text not in judged(tmp_path)[1].limitations


# -- steps of a trainer ------------------------------------------------------------------------------


def test_logged_steps_stand_for_those_between(tmp_path: Path) -> None:
    run = next(run for run in FOUND_RUNS if run.name == "trl-0.17")
    training = item(judged(run.write(tmp_path))[1], "Training")
    assert training.status is Status.PASS
    assert "100 of 100 planned train steps ran, logged every 10 steps" in training.reason
    assert "all values of the 7 metrics that jobspec watches are finite" in training.reason


def test_steps_after_the_last_file_are_not_proved(tmp_path: Path) -> None:
    """They may have run: somebody copied the files, or the tracker lost them. A failure settles it."""
    text = HEAD + TOTAL.format("1,000") + "".join(f"{bar(s, 1000)}\n{logged(s)}\n" for s in range(1, 31))
    (tmp_path / "train.log").write_text(text)
    training = item(judged(tmp_path)[1], "Training")
    missing = "30 of 1000 planned train steps were read; step 31 is the first missing one"
    assert (training.status, training.reason) == (Status.BLOCKED, f"not shown: {missing}")
    (tmp_path / "train.log").write_text(text + CRASH)
    training = item(judged(tmp_path)[1], "Training")
    assert (training.status, training.reason) == (Status.FAIL, missing)


def test_crash_of_a_run_with_unknown_plan_passes_nothing(tmp_path: Path) -> None:
    text = "".join(f"{logged(step)}\n" for step in (1, 2, 3))
    (tmp_path / "train.log").write_text(text)
    training = item(judged(tmp_path)[1], "Training")
    assert (
        training.status is Status.PASS and "no number of planned steps was read with them" in training.reason
    )
    (tmp_path / "train.log").write_text(text + CRASH)
    verdict = judged(tmp_path)[1]
    assert item(verdict, "Training").status is Status.BLOCKED
    assert verdict.result is not Result.PASS
    whole = judged(tmp_path, steps=3)[1]
    assert (item(whole, "Training").status, item(whole, "Run").status) == (Status.PASS, Status.FAIL)
    assert whole.first_cause is not None and "ValueError" in whole.first_cause.text
    (tmp_path / "train.log").write_text(f"{text}{END}\n{CRASH}")  # behind the Trainer's own end it is noise
    assert judged(tmp_path, steps=3)[1].result is Result.PASS


def test_bar_after_the_last_dict_announces_the_steps(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(f"{logged(1)}\n{logged(2)}\n{bar(2, 400)}\n")
    assert "2 of 400 planned train steps were read" in item(judged(tmp_path)[1], "Training").reason


def test_steps_before_the_first_file_are_not_proved(tmp_path: Path) -> None:
    text = HEAD + "".join(f"{bar(s, 90)}\n{logged(s)}\n" for s in range(51, 91)) + f"{END}\n"
    (tmp_path / "train.log").write_text(text)
    training = item(judged(tmp_path)[1], "Training")
    assert training.status is Status.BLOCKED and "from 51 on" in training.reason


def test_gap_between_logged_steps_is_missing(tmp_path: Path) -> None:
    rows = [{**logged(step), "step": step} for step in range(10, 101, 10) if step not in (40, 50)]
    (tmp_path / "m.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    training = item(judged(tmp_path)[1], "Training")
    assert training.reason == "not shown: 80 of 100 train steps were read; step 31 is the first missing one"


def test_reward_under_the_prefix_of_tensorboard_is_trl_s(tmp_path: Path) -> None:
    run = next(run for run in FOUND_RUNS if run.name == "tensorboard")
    evidence, verdict = judged(run.write(tmp_path), "trl", "learning", "reward")
    assert len(evidence.metrics.series("reward")) == 20
    assert any("`train/reward` was read in place of" in text for text in verdict.limitations)
    assert "train/reward" in {figure.metric for figure in verdict.figures}
    assert "reward" not in {figure.metric for figure in verdict.figures}
    training = item(verdict, "Training").reason
    assert "train/reward" in training and ", reward," not in training and "(reward," not in training


def test_another_framework_s_metrics_prove_no_training_of_trl(tmp_path: Path) -> None:
    training = item(judged(verl_new().write(tmp_path))[1], "Training")
    assert training.status is Status.BLOCKED and "`reward` was not found" in training.reason


def sft(step: int) -> dict[str, float]:
    return {"loss": 2.0 - step / 100, "grad_norm": 0.5, "learning_rate": 1e-05, "epoch": step / 100}


@pytest.mark.parametrize("late", [True, False])
def test_steps_of_a_run_without_reward_are_those_of_its_loss(late: bool, tmp_path: Path) -> None:
    """The bar moves before each dict, or only after it."""
    parts = [(f"{bar(step, 60)}\n", f"{sft(step)}\n") for step in range(10, 31, 10)]
    lines = [line for move, row in parts for line in ((row, move) if late else (move, row))]
    (tmp_path / "a.log").write_text(GRPO + bar(0, 60) + "\n" + "".join(lines) + CRASH)
    training = item(judged(tmp_path, steps=60)[1], "Training")
    assert training.status is Status.FAIL
    assert training.reason.startswith(
        "step 30 of 60 planned train steps is the last one with a `loss` in a.log"
    )
    assert training.limits == (), "nothing is to be rated in an SFT"


def test_bar_that_moves_seldom_still_counts_the_steps(tmp_path: Path) -> None:
    lines = [f"{sft(step)}\n" + (f"{bar(step, 60)}\n" if step % 12 == 0 else "") for step in range(3, 52, 3)]
    (tmp_path / "a.log").write_text(GRPO + bar(0, 60) + "\n" + "".join(lines) + CRASH)
    reason = item(judged(tmp_path, steps=60)[1], "Training").reason
    assert reason.startswith("step 51 of 60 planned train steps is the last one")


def test_only_files_with_metrics_are_said_to_hold_some(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(f"{GRPO}{logged(1)}\n")
    (tmp_path / "b.log").write_text("nothing\n")
    reason = item(judged(tmp_path, "trl", "learning", "rewrd")[1], "Learning").reason
    assert reason.startswith("`rewrd` was not found: jobspec read `loss`")
    assert "from `a.log`, and none from 1 other file" in reason


UNFIT = "ValueError: loaded state dict contains a parameter group that doesn't match the optimizer's group"


@pytest.mark.parametrize(
    ("line", "result"),
    [
        (UNFIT, Result.FAIL),
        ("ValueError: No valid checkpoint found in output directory (out)", Result.BLOCKED),
        ("OSError: [Errno 28] No space left on device", Result.BLOCKED),
    ],
)
def test_checkpoint_that_does_not_fit_fails_a_level_that_resumes(
    line: str, result: Result, tmp_path: Path
) -> None:
    checkpoint(tmp_path, 2, "model.safetensors", "optimizer.pt")
    (tmp_path / "first.log").write_text(GRPO + "".join(f"{bar(at, 4)}\n{logged(at)}\n" for at in (1, 2)))
    (tmp_path / "second.log").write_text(
        f'{GRPO}{CRASH.splitlines()[0]}\n  File "t.py", line 1, in <module>\n{line}\n'
    )
    verdict = judged(tmp_path, level="checkpoint", steps=4)[1]
    assert verdict.result is result
    assert (item(verdict, "Resume").status is Status.FAIL) is (result is Result.FAIL)


# -- checkpoints -------------------------------------------------------------------------------------


def checkpoint(folder: Path, step: int, *names: str) -> None:
    place = folder / f"out/checkpoint-{step}"
    place.mkdir(parents=True)
    for name in names:
        (place / name).write_text("x")
    (place / "trainer_state.json").write_text(trainer_state(step, 1, 4))


@pytest.mark.parametrize(
    ("step", "names", "status", "reason"),
    [
        (
            4,
            (*(f"model-0000{at}-of-00002.safetensors" for at in (1, 2)), "optimizer.pt"),
            Status.PASS,
            "of step 4",
        ),
        (4, ("model-00001-of-00002.safetensors", "optimizer.pt"), Status.BLOCKED, "`model-00002-of-00002"),
        (4, ("adapter_model.safetensors", "optimizer.pt"), Status.PASS, "of step 4"),
        (4, ("optimizer.pt",), Status.BLOCKED, "no file of weights"),
        (2, ("model.safetensors", "optimizer.pt"), Status.BLOCKED, "after step 2 of 4"),
    ],
)
def test_checkpoint_is_judged_by_its_files(
    step: int, names: tuple[str, ...], status: Status, reason: str, tmp_path: Path
) -> None:
    checkpoint(tmp_path, step, *names)
    verdict = judged(tmp_path, level="checkpoint")[1]
    assert item(verdict, "Checkpoint").status is status and reason in item(verdict, "Checkpoint").reason
    assert item(verdict, "Resume").status is Status.BLOCKED
    assert verdict.result is not Result.PASS


ALL_STATE = ("adapter_model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth")
BEGAN, WENT_ON = "***** Running training *****", "  Continuing training from global step 2"


def saves(step: int) -> str:
    return f"Saving model checkpoint to /x/out/checkpoint-{step}"


def two_processes(folder: Path, *names: str, second: tuple[str, ...] = (WENT_ON,)) -> None:
    checkpoint(folder, 2, *names)
    checkpoint(folder, 4, *names)
    (folder / "1.log").write_text("\n".join((BEGAN, str(logged(1)), str(logged(2)), saves(2), "")))
    (folder / "2.log").write_text("\n".join((BEGAN, *second, str(logged(3)), str(logged(4)), saves(4), "")))


@pytest.mark.parametrize(
    "line", (WENT_ON, "  Resuming training from checkpoint with epoch 0 and global step 2")
)
def test_second_process_that_goes_on_from_all_state_is_a_resume(line: str, tmp_path: Path) -> None:
    two_processes(tmp_path, *ALL_STATE, second=(line,))
    resume = item(judged(tmp_path, level="checkpoint", steps=4)[1], "Resume")
    assert (resume.status, resume.reason) == (
        Status.PASS,
        "a second process went on from step 2, and saved step 4",
    )
    verdict = judged(tmp_path, level="checkpoint", steps=4)[1]
    assert any("were loaded is inferred" in text for text in verdict.limitations)


@pytest.mark.parametrize("lack", ("optimizer", "scheduler", "rng_state"))
def test_resume_without_a_file_of_its_state_is_not_shown(lack: str, tmp_path: Path) -> None:
    two_processes(tmp_path, *(name for name in ALL_STATE if lack not in name))
    resume = item(judged(tmp_path, level="checkpoint", steps=4)[1], "Resume")
    assert resume.status is Status.BLOCKED
    assert f"the {lack.replace('rng_', 'random ')} in `" in resume.reason


@pytest.mark.parametrize(
    ("second", "steps", "reason"),
    [
        ((), 4, "not shown by a line that jobspec knows: a process that goes on"),
        (("  Continuing training from global step 3",), 4, "the checkpoint of step 3"),
        (
            (WENT_ON, "Didn't find an RNG file, if you are resuming a training"),
            4,
            "the random state at step 2",
        ),
        ((WENT_ON,), 9, "train steps up to 9"),
        (("Resuming from /out/checkpoint-2",), 4, "and trained on, as 2.log:2 says"),
        (("resume_from_checkpoint=None, save the last checkpoint: yes",), 4, "not shown by a line"),
        (("to resume, continuing training from checkpoint is possible",), 4, "not shown by a line"),
    ],
)
def test_resume_that_the_files_do_not_show(
    second: tuple[str, ...], steps: int, reason: str, tmp_path: Path
) -> None:
    two_processes(tmp_path, *ALL_STATE, second=second)
    resume = item(judged(tmp_path, level="checkpoint", steps=steps)[1], "Resume")
    assert resume.status is Status.BLOCKED and reason in resume.reason


def test_empty_file_holds_no_weights(tmp_path: Path) -> None:
    two_processes(tmp_path, *ALL_STATE)
    for step in (2, 4):
        (tmp_path / f"out/checkpoint-{step}/adapter_model.safetensors").write_bytes(b"")
    verdict = judged(tmp_path, level="checkpoint", steps=4)[1]
    assert item(verdict, "Checkpoint").reason.endswith("weights: `adapter_model.safetensors` is empty")
    assert (
        item(verdict, "Resume").status is Status.BLOCKED
        and "the weights in `" in item(verdict, "Resume").reason
    )


def test_only_process_is_no_second_one(tmp_path: Path) -> None:
    two_processes(tmp_path, *ALL_STATE)
    (tmp_path / "1.log").unlink()
    resume = item(judged(tmp_path, level="checkpoint", steps=4)[1], "Resume")
    assert resume.status is Status.BLOCKED and "an earlier process wrote the checkpoint" in resume.reason


@pytest.mark.parametrize(
    ("log", "text", "reason"),
    [
        (
            "1.log",
            BEGAN,
            "an earlier process wrote the checkpoint",
        ),  # it saved nothing: the checkpoint is a copy
        ("1.log", f"{BEGAN}\n{saves(4)}", "an earlier process wrote the checkpoint"),
        ("2.log", f"{BEGAN}\n{WENT_ON}", "a later checkpoint of that process"),
        ("2.log", f"{BEGAN}\n{WENT_ON}\n{BEGAN}\n{logged(1)}\n{saves(4)}", "a later checkpoint of that"),
    ],
)
def test_save_of_another_process_proves_no_resume(log: str, text: str, reason: str, tmp_path: Path) -> None:
    two_processes(tmp_path, *ALL_STATE)
    (tmp_path / log).write_text(f"{text}\n")
    resume = item(judged(tmp_path, level="checkpoint", steps=4)[1], "Resume")
    assert resume.status is Status.BLOCKED and reason in resume.reason


def test_checkpoint_of_another_run_is_not_what_a_process_went_on_from(tmp_path: Path) -> None:
    two_processes(tmp_path, *ALL_STATE)
    state = tmp_path / "out/checkpoint-2/trainer_state.json"
    history = [{"step": step, "reward": 0.125} for step in (1, 2)]
    state.write_text(json.dumps({"global_step": 2, "max_steps": 4, "log_history": history}))
    resume = item(judged(tmp_path, level="checkpoint", steps=4)[1], "Resume")
    assert resume.status is Status.BLOCKED and "whose history holds that of step 2" in resume.reason


def test_folder_whose_state_ends_at_the_resume_is_no_later_checkpoint(tmp_path: Path) -> None:
    two_processes(tmp_path, *ALL_STATE)
    first, second = ("".join(f"{bar(at, 4)}\n{logged(at)}\n" for at in steps) for steps in ((1, 2), (3, 4)))
    (tmp_path / "1.log").write_text(f"{BEGAN}\n{first}{saves(2)}\n")
    (tmp_path / "2.log").write_text(f"{BEGAN}\n{WENT_ON}\n{second}{saves(4)}\n")
    assert item(judged(tmp_path, level="checkpoint", steps=4)[1], "Resume").status is Status.PASS
    (tmp_path / "out/checkpoint-4/trainer_state.json").write_text(trainer_state(2, 1, 4))
    resume = item(judged(tmp_path, level="checkpoint", steps=4)[1], "Resume")
    assert resume.status is Status.BLOCKED and "a later checkpoint of that process" in resume.reason


def test_save_before_the_first_reward_does_not_tell_a_resume_from_a_new_start(tmp_path: Path) -> None:
    """The Trainer restores nothing else that the later state would show: both write the same file."""
    two_processes(tmp_path, *ALL_STATE)
    for step in (2, 4):
        state = tmp_path / f"out/checkpoint-{step}/trainer_state.json"
        rows = [row for row in json.loads(state.read_text())["log_history"] if row["step"] > 2]
        state.write_text(json.dumps({"global_step": step, "max_steps": 4, "log_history": rows}))
    resume = item(judged(tmp_path, level="checkpoint", steps=4)[1], "Resume")
    assert resume.status is Status.BLOCKED
    assert "has no `reward` to compare: `logging_steps` has to be at most" in resume.reason


# -- a metric that is not there ----------------------------------------------------------------------


def test_lacking_metric_blocks_and_names_what_was_read(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(f"{logged(1)}\n{logged(2)}\n")
    verdict = judged(tmp_path, "command", "run", "rewrd")[1]
    assert verdict.result is Result.BLOCKED
    reason = item(verdict, "Learning").reason
    assert reason.startswith("`rewrd` was not found: jobspec read `loss`, `grad_norm`")
    assert reason.endswith("and 1 more from `a.log`; did you mean `reward`?")


def test_files_without_any_metric_block(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("hello\n")
    verdict = judged(tmp_path, "trl", "learning", "reward")[1]
    assert verdict.result is Result.BLOCKED
    assert item(verdict, "Learning").reason == ("`reward` was not found: jobspec read no metric from `a.log`")


def test_lacking_required_metric_blocks_but_a_failed_one_fails(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(f"{logged(1)}\n{logged(2)}\n")
    for requirements, result in (
        (("max(scor) > 1",), Result.BLOCKED), (("count(scor) > 1",), Result.BLOCKED),
        (("max(scor) > 1", "max(reward) > 9"), Result.FAIL), (("max(train/reward) > 0",), Result.PASS),
    ):  # fmt: skip
        assert judged(tmp_path, "command", "run", "", *requirements)[1].result is result, requirements


def test_only_metric_that_ends_in_the_asked_name_is_judged(tmp_path: Path) -> None:
    rows = [{"step": step, "rollout/raw_reward": step / 10} for step in range(1, 41)]
    (tmp_path / "m.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    verdict = judged(tmp_path, "command", "run", "raw_reward", "max(raw_reward) > 3.5")[1]
    assert verdict.result is Result.PASS
    assert any("`rollout/raw_reward` was read in place of" in text for text in verdict.limitations)


def test_metric_that_is_asked_for_as_it_is_logged_replaces_none(tmp_path: Path) -> None:
    rows = [{"step": step, "objective/scores": step / 10} for step in range(1, 41)]
    (tmp_path / "m.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    verdict = judged(tmp_path, "trl", "learning", "objective/scores")[1]
    assert not any("in place of" in text for text in verdict.limitations)


def test_metric_of_held_out_data_is_not_judged_for_that_of_training(tmp_path: Path) -> None:
    rows = [{"step": step, "eval/raw_reward": step / 10} for step in range(1, 41)]
    (tmp_path / "m.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    verdict = judged(tmp_path, "command", "run", "raw_reward", "max(raw_reward) > 3.5")[1]
    assert verdict.result is Result.BLOCKED and "`raw_reward` was not found" in verdict.reason


def test_several_metrics_that_end_in_the_asked_name_are_named(tmp_path: Path) -> None:
    rows = [{"step": step, "a/raw_reward": step / 10, "b/raw_reward": 0.1} for step in range(1, 41)]
    (tmp_path / "m.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for learning, requirements in (("raw_reward", ()), ("", ("max(raw_reward) > 3.5",))):
        verdict = judged(tmp_path, "command", "run", learning, *requirements)[1]
        assert verdict.result is Result.BLOCKED
        assert "2 metrics end in it: `a/raw_reward`, `b/raw_reward`" in verdict.reason
