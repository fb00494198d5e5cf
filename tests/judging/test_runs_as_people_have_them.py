"""Folders of runs that others launched, as they lie there, and what `judge` must not say of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from jobspec import frameworks
from jobspec.judging.foreign_run import expected, judge_files
from jobspec.verdict import Result, Status, Verdict

PASS, FAIL, BLOCKED = Result.PASS, Result.FAIL, Result.BLOCKED


def judged(
    place: Path, framework: str = "command", level: str = "", steps: int = 0, learning: str = ""
) -> Verdict:
    adapter = frameworks.get(framework)
    level = level or adapter.levels[0].name
    return judge_files(place, expected(adapter, level, (), steps, (), learning, ()))[1]


def rising(count: int, seed: int = 0, start: float = 0.2, end: float = 0.7) -> list[float]:
    noise = random.Random(seed)
    return [start + (end - start) * i / count + noise.gauss(0, 0.03) for i in range(count)]


def write(place: Path, lines: Iterable[str]) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("".join(f"{line}\n" for line in lines))


def records(values: Iterable[float], **more: float | None) -> Iterable[str]:
    return (json.dumps({"step": step, "reward": value, **more}) for step, value in enumerate(values, 1))


def trainer(count: int, total: int) -> list[str]:
    """What the Trainer prints up to step `count`."""
    lines = ["***** Running training *****", f"  Total optimization steps = {total}"]
    for step, value in enumerate(rising(count), 1):
        lines.append(f" 3%|# | {step}/{total} [01:00<10:00,  6.11s/it]")
        lines.append(
            f"{{'loss': 0.01, 'grad_norm': 0.3, 'reward': {value:.4f}, 'reward_std': 0.3, 'epoch': 0.1}}"
        )
    return lines


TRACE = [
    "Traceback (most recent call last):",
    '  File "/src/train.py", line 61, in <module>',
    "    main()",
]
SIGNALLED = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1211 got signal: 15"
CLOSING = (
    "W1002 13:11:08.12 1211 torch/distributed/elastic/multiprocessing/api.py:900] "
    "Sending process 1301 closing signal SIGTERM"
)


@pytest.mark.parametrize("end", (["KeyboardInterrupt"], [SIGNALLED], [SIGNALLED, CLOSING, "exit status 143"]))
def test_request_to_end_is_no_failure_of_the_run(end: list[str], tmp_path: Path) -> None:
    write(tmp_path / "train.log", [*trainer(60, 200), *TRACE, *end])
    verdict = judged(tmp_path, "trl", steps=200)
    assert verdict.result is BLOCKED
    assert verdict.first_cause is not None
    assert "a signal asked the run to end" in verdict.first_cause.why


def test_failure_before_a_request_to_end_stays_one(tmp_path: Path) -> None:
    write(tmp_path / "train.log", [*trainer(60, 200), *TRACE, "ZeroDivisionError: division by zero", CLOSING])
    verdict = judged(tmp_path, "trl", steps=200)
    assert verdict.result is FAIL
    assert verdict.first_cause is not None
    assert "ZeroDivisionError" in verdict.first_cause.text


def test_flat_and_rising_runs_in_one_folder_are_no_verdict(tmp_path: Path) -> None:
    noise = random.Random(3)
    write(tmp_path / "seed1/metrics.jsonl", records([0.3 + noise.gauss(0, 0.03) for _ in range(100)]))
    write(tmp_path / "seed2/metrics.jsonl", records(rising(100)))
    verdict = judged(tmp_path, learning="reward")
    assert verdict.result is BLOCKED
    assert "`seed2/metrics.jsonl` and `seed1/metrics.jsonl` hold other values" in verdict.reason
    assert "moves up in the first alone" in verdict.reason


def test_two_runs_that_both_rise_pass_with_a_warning(tmp_path: Path) -> None:
    for seed in (1, 2):
        write(tmp_path / f"seed{seed}/metrics.jsonl", records(rising(100, seed)))
    verdict = judged(tmp_path, learning="reward")
    assert verdict.result is PASS
    assert "metrics.several-runs" in {finding.rule for finding in verdict.findings}


def test_null_between_evaluations_is_no_value(tmp_path: Path) -> None:
    scores = rising(15, end=0.9)
    lines = (
        json.dumps({"step": step, "eval_reward": None if step % 10 else scores[step // 10 - 1]})
        for step in range(1, 151)
    )
    write(tmp_path / "history.jsonl", lines)
    assert judged(tmp_path, learning="eval_reward").result is PASS


def test_loss_that_is_lost_to_the_end_contradicts_a_rise(tmp_path: Path) -> None:
    lines = (
        json.dumps({"step": step, "reward": value, "loss": None if step > 40 else 0.1})
        for step, value in enumerate(rising(100), 1)
    )
    write(tmp_path / "metrics.jsonl", lines)
    verdict = judged(tmp_path, learning="reward")
    assert verdict.result is FAIL
    assert "`loss` is nan from step 41 to the end" in verdict.reason


def test_value_that_comes_back_spoilt_nothing(tmp_path: Path) -> None:
    lines = (
        json.dumps({"step": step, "reward": value, "grad_norm": None if step == 31 else 0.1})
        for step, value in enumerate(rising(100), 1)
    )
    write(tmp_path / "metrics.jsonl", lines)
    verdict = judged(tmp_path, learning="reward")
    assert verdict.result is PASS
    assert any("from step 32 on it is a number again" in finding.why for finding in verdict.findings)
    assert not any("spoils" in finding.why for finding in verdict.findings)


def test_asked_score_is_no_second_witness_of_itself(tmp_path: Path) -> None:
    lines = (json.dumps({"step": s, "eval/reward": v}) for s, v in enumerate(rising(40), 1))
    write(tmp_path / "metrics.jsonl", lines)
    verdict = judged(tmp_path, learning="eval/reward")
    assert verdict.result is PASS
    assert not any("rose with it" in item.reason for item in verdict.deliverables)


def test_skyrl_says_that_it_saved_and_loaded(tmp_path: Path) -> None:
    head = "2025-09-08 17:{:02d}:58.556 | INFO     | skyrl_train.trainer:train:188 - {}"
    reward = "avg_final_rewards: 0.3, avg_response_length: 240.1"
    saved = "Successfully saved checkpoint for global_step_{0} to: /ckpts/global_step_{0}"
    done = "Finished: 'step', time cost: 23.0s"
    first = [text for _ in range(4) for text in (reward, done)]
    second = [
        "Resuming from global_step: 4",
        "Successfully loaded complete checkpoint state from global_step_4",
        *first,
    ]
    write(tmp_path / "1.log", [head.format(1, text) for text in (*first, saved.format(4))])
    write(tmp_path / "2.log", [head.format(2, text) for text in (*second, saved.format(8))])
    verdict = judged(tmp_path, "skyrl", "checkpoint", steps=8)
    checkpoint = next(item for item in verdict.deliverables if item.name == "Checkpoint")
    assert (verdict.result, checkpoint.status) == (PASS, Status.PASS)
    assert "jobspec found no files of it" in checkpoint.reason


def test_skyrl_scores_of_each_evaluation_have_their_step(tmp_path: Path) -> None:
    for step, score in enumerate(rising(12), 1):
        folder = tmp_path / f"exports/dumped_evals/global_step_{10 * step}_evals"
        write(folder / "aggregated_results.jsonl", [json.dumps({"eval/all/avg_score": score})])
    assert judged(tmp_path, learning="eval/all/avg_score").result is PASS


def test_evaluation_that_failed_beside_the_run_is_not_its_end(tmp_path: Path) -> None:
    end = "{'train_runtime': 1834.1, 'train_loss': 0.0012, 'epoch': 1.0}"
    write(tmp_path / "train.log", [*trainer(60, 60), end])
    missing = "ModuleNotFoundError: No module named 'math_verify'"
    write(tmp_path / "eval.log", [*TRACE, missing, "exit code: 1"])
    verdict = judged(tmp_path, "trl", steps=60)
    assert verdict.result is PASS
    assert any("math_verify" in finding.what for finding in verdict.findings)


@pytest.mark.parametrize("count", ("episode", "epoch", "update"))
def test_count_of_each_record_is_its_step(count: str, tmp_path: Path) -> None:
    write(
        tmp_path / "log.jsonl",
        (json.dumps({count: at, "reward": v}) for at, v in enumerate(rising(60), 1)),
    )
    assert judged(tmp_path, learning="reward").result is PASS


def test_values_without_any_step_are_told(tmp_path: Path) -> None:
    write(tmp_path / "log.jsonl", (json.dumps({"reward": value}) for value in rising(60)))
    verdict = judged(tmp_path, learning="reward")
    assert verdict.result is BLOCKED
    assert verdict.reason.startswith("Learning: jobspec read no step beside the values of `reward`")


@pytest.mark.parametrize("steps_after", (0, 13))
def test_resume_whose_log_just_ends_is_not_shown_to_fail(steps_after: int, tmp_path: Path) -> None:
    head = "2025-09-08 17:02:58.556 | INFO     | skyrl_train.trainer:train:188 - "
    step = [
        f"{head}avg_final_rewards: 0.3, avg_response_length: 240.1",
        f"{head}Finished: 'step', time cost: 23.0s",
    ]
    saved = f"{head}Successfully saved checkpoint for global_step_20 to: /ckpts/global_step_20"
    resumed = [
        f"{head}Resuming from global_step: 20",
        f"{head}Successfully loaded complete checkpoint state from global_step_20",
    ]
    write(tmp_path / "1.log", [*step * 20, saved])
    write(tmp_path / "2.log", [*resumed, *step * steps_after])
    assert judged(tmp_path, "skyrl", "checkpoint", steps=40).result is BLOCKED


def test_metrics_without_a_criterion_are_no_run_that_did_not_take_place(tmp_path: Path) -> None:
    write(tmp_path / "metrics.jsonl", (json.dumps({"step": i, "loss": float("nan")}) for i in range(1, 20)))
    verdict = judged(tmp_path)
    assert (verdict.result, "`loss` of step 1 is nan" in verdict.reason) == (FAIL, True)
    assert "`loss` is nan from step 1 to the end" in [finding.what for finding in verdict.findings]


def test_table_that_cannot_be_read_is_not_told_as_missing(tmp_path: Path) -> None:
    write(tmp_path / "progress.csv", ["tokens,reward", *(f"{i * 524288},0.{i}" for i in range(1, 10))])
    assert judged(tmp_path).reason == "the path holds no log and no metric that jobspec can read"


def test_line_of_the_shutdown_is_not_said_to_be_outlived(tmp_path: Path) -> None:
    write(tmp_path / "train.log", [*trainer(40, 40), "{'train_runtime': 400.0}", "Killed", "exit code 0"])
    found = [finding for finding in judged(tmp_path, "trl").findings if finding.what.endswith("Killed")]
    assert [(one.what, one.fix) for one in found] == [
        (
            "a line looks like a failure: Killed",
            "look at the line once: jobspec does not take it for the cause of the verdict",
        )
    ]


def test_loss_that_is_asked_for_has_to_fall(tmp_path: Path) -> None:
    write(tmp_path / "m.jsonl", (json.dumps({"step": i, "loss": 2 - v}) for i, v in enumerate(rising(60))))
    assert judged(tmp_path, learning="loss").result is PASS


def test_weak_failure_line_at_the_end_is_told_beside_a_pass(tmp_path: Path) -> None:
    """No exit code of ours says how a run of somebody else ended."""
    write(tmp_path / "m.jsonl", records(rising(60)))
    nccl = "torch.distributed.DistBackendError: NCCL error in: /pytorch/ProcessGroupNCCL.cpp:2251, "
    write(tmp_path / "train.log", [f"{nccl}unhandled cuda error (run with NCCL_DEBUG=INFO for details)"])
    verdict = judged(tmp_path, learning="reward")
    assert verdict.result is PASS
    assert [(one.file, one.fix) for one in verdict.findings] == [
        ("train.log", "look at the line once: what is asked for is proved all the same")
    ]


def test_failure_that_explains_missing_values_is_the_headline(tmp_path: Path) -> None:
    write(tmp_path / "m.jsonl", records([0.5]))
    write(tmp_path / "train.log", [*TRACE, "NameError: name 'x' is not defined"])
    verdict = judged(tmp_path, learning="reward")
    assert verdict.result is FAIL and "NameError: name 'x' is not defined" in verdict.reason


@pytest.mark.parametrize(("status", "told"), [("4", ["FAILED"]), ("3", [])])
def test_end_by_mlflow_is_told(status: str, told: list[str], tmp_path: Path) -> None:
    run = tmp_path / "mlruns/0/ab12"
    write(run / "metrics/reward", (f"{1772616000000 + i} {value} {i}" for i, value in enumerate(rising(50))))
    write(run / "meta.yaml", ["run_id: ab12", f"status: {status}"])
    said = [text for text in judged(tmp_path, learning="reward").limitations if "MLflow" in text]
    assert said == [f"MLflow's own record says {word} of the run in mlruns/0/ab12" for word in told]


def test_what_a_run_of_others_had_is_not_made_up(tmp_path: Path) -> None:
    """A fine-tuning has no reward, the log announces the steps, and jobspec does not know each exit code."""
    lines = [f"{{'loss': {2 - 0.03 * i:.4f}, 'grad_norm': 0.5, 'epoch': {i / 40}}}" for i in range(1, 41)]
    write(tmp_path / "train.log", [*lines, "Job entrypoint command failed with exit code 1, last logs:"])
    limits = " ".join(judged(tmp_path, "trl", learning="loss").limitations)
    for made_up in (
        "a rule reward",
        "took part: its",
        "no log states",
        "only the command line",
        "about learning",
    ):
        assert made_up not in limits


def test_start_that_follows_a_failure_is_not_said_to_be_the_same_run(tmp_path: Path) -> None:
    steps = [f"step {i}/20 | loss {2 - 0.01 * i:.3f}" for i in range(1, 21)]
    crash = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    write(tmp_path / "train.log", [*steps[:9], crash, "+ python train.py", *steps])
    found = [finding for finding in judged(tmp_path, learning="loss").findings if crash in finding.what]
    assert [one.fix for one in found] == [
        "look at the line once: training went on after it, or began anew",
    ]


def test_command_that_states_a_code_is_not_the_run(tmp_path: Path) -> None:
    write(tmp_path / "train.log", [*trainer(40, 40), "rsync: exit code 23"])
    run = next(item for item in judged(tmp_path, "trl").deliverables if item.name == "Run")
    assert run.reason == "the last exit code that a log states is 23"


def test_checkpoint_too_deep_to_be_found_is_not_said_to_be_missing(tmp_path: Path) -> None:
    state = {
        "global_step": 40,
        "log_history": [{"step": s, "reward": v} for s, v in enumerate(rising(40), 1)],
    }
    write(tmp_path / "a/b/c/d/e/checkpoint-40/trainer_state.json", [json.dumps(state)])
    write(tmp_path / "train.log", trainer(40, 40))
    verdict = judged(tmp_path, "trl", "checkpoint")
    assert "jobspec found no checkpoint with a `trainer_state.json`" in verdict.reason


def test_exit_of_a_program_by_itself_is_no_signal(tmp_path: Path) -> None:
    write(tmp_path / "train.log", [*trainer(20, 40), *TRACE, "SystemExit: 1"])
    told = [item.reason for item in judged(tmp_path, "trl").deliverables]
    assert not any("a signal asked" in reason for reason in told)


def test_steps_without_a_metric_make_no_claim_about_metrics(tmp_path: Path) -> None:
    head = "2025-09-08 17:01:58.556 | INFO     | skyrl_train.utils:__exit__:188 - {}"
    done = (
        "Started: 'step'",
        "Finished: 'sync_weights', time cost: 1.0s",
        "Finished: 'step', time cost: 23.0s",
    )
    write(tmp_path / "1.log", [head.format(text) for _ in range(4) for text in done])
    told = " ".join(item.reason for item in judged(tmp_path, "skyrl").deliverables)
    assert "0 metrics" not in told
