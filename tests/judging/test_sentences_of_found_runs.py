"""Sentences about runs of others that were untrue of some folder, each beside that folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobspec.evidence.log_facts import scan_facts
from jobspec.report.lines import figure_name, figure_text
from jobspec.verdict import Figure, Verdict
from tests.judging.test_runs_as_people_have_them import BLOCKED, judged, records, rising, trainer, write

SKYRL = (
    "(skyrl_entrypoint pid={pid}) INFO - step: {step} - reward/avg_raw_reward:{reward:.3f} - timing/step:9.1"
)


def said(verdict: Verdict) -> str:
    cause = verdict.first_cause
    told = [cause.text, cause.why, cause.fix] if cause is not None else []
    rows = [item.reason for item in verdict.deliverables]
    findings = [f"{one.what} {one.why} {one.fix}" for one in verdict.findings]
    return "\n".join([verdict.reason, *rows, *told, *verdict.limitations, *findings])


def test_a_rank_that_failed_before_the_others_hung_is_not_outlived(tmp_path: Path) -> None:
    """The last step has no stamp of its own, and the next line comes ten minutes after it."""
    hung = (
        "[rank3]:[E401 10:02:01.1 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=9911, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600012 milliseconds"
    )
    write(tmp_path / "node0.log", [*trainer(22, 80), hung])
    write(
        tmp_path / "node1.log",
        [
            "[rank11]: Traceback (most recent call last):",
            '[rank11]:   File "/w/sft.py", line 88, in <module>',
            "[rank11]:     trainer.train()",
            "[rank11]: OSError: [Errno 5] Input/output error: '/lustre/data/part-0113.arrow'",
            "W0401 09:51:58.000 881 torch/distributed/elastic/multiprocessing/api.py:898] "
            "Sending process 900 closing signal SIGTERM",
        ],
    )
    verdict = judged(tmp_path, steps=80)
    assert verdict.first_cause is not None
    assert verdict.first_cause.file == "node1.log"
    assert "training went on" not in said(verdict)


@pytest.mark.parametrize("line", ["return code: 512", "+ exit 300", "exit code: 999"])
def test_no_number_above_255_is_an_exit_code(line: str, tmp_path: Path) -> None:
    write(tmp_path / "metrics.jsonl", records(rising(30)))
    write(tmp_path / "out.log", ["train", line])
    text = said(judged(tmp_path, learning="reward"))
    assert line[-3:] not in text
    assert "jobspec read no exit code" in text


def resumed(place: Path, planned: int) -> None:
    rows = [{"step": step, "loss": 2.0 - step / 300, "grad_norm": 1.0} for step in range(10, 301, 10)]
    state = {"global_step": 300, "max_steps": 300, "logging_steps": 10, "log_history": rows}
    write(place / "checkpoint-300" / "trainer_state.json", [json.dumps(state)])
    began = ["***** Running training *****", f"  Total optimization steps = {planned}"]
    write(place / "second.log", [*began, "  Continuing training from global step 300"])
    listing = ["$ ls -l out", "drwx checkpoint-300", "$ ls -l out/checkpoint-300", "-rw model.safetensors"]
    write(place / "listing.txt", [*listing, "-rw optimizer.pt", "", "$ ls -l other", "-rw scheduler.pt"])


def test_a_resume_without_a_step_left_is_the_cause(tmp_path: Path) -> None:
    resumed(tmp_path, 300)
    verdict = judged(tmp_path, "trl", "checkpoint")
    assert verdict.result is BLOCKED
    assert verdict.first_cause is not None
    assert "with 300 steps in all: none was left" in verdict.first_cause.text
    assert "max_steps" in verdict.first_cause.fix
    assert "from which a process went on" not in said(verdict)


def test_files_that_a_listing_names_are_told(tmp_path: Path) -> None:
    resumed(tmp_path, 400)
    text = said(judged(tmp_path, "trl", "checkpoint"))
    assert "`listing.txt` lists weights and an optimizer" in text
    write(
        tmp_path / "listing.txt", ["$ ls -l out/checkpoint-200", "-rw model.safetensors", "-rw optimizer.pt"]
    )
    assert "listing.txt" not in said(judged(tmp_path, "trl", "checkpoint"))


def test_a_later_folder_without_the_state_is_told(tmp_path: Path) -> None:
    resumed(tmp_path, 400)
    write(tmp_path / "checkpoint-400" / "config.json", ["{}"])
    text = said(judged(tmp_path, "trl", "checkpoint", steps=400))
    assert "the folder given of step 400 holds no `trainer_state.json`" in text
    assert "no folder of a checkpoint after" not in text


def test_a_resume_at_the_last_step_says_that_no_step_came_after(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": 2.0 - step / 300, "grad_norm": 1.0} for step in range(10, 301, 10)]
    state = {"global_step": 300, "max_steps": 300, "logging_steps": 10, "log_history": rows}
    write(tmp_path / "checkpoint-300" / "trainer_state.json", [json.dumps(state)])
    write(tmp_path / "second.log", ["+ python sft.py --resume_from_checkpoint out/checkpoint-300"])
    said_of = said(judged(tmp_path, "trl", "checkpoint"))
    assert "second.log:1 says that one was to from step 300: jobspec read no train step after it" in said_of


def test_only_a_run_that_samples_is_said_to_lack_a_reward(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": 1.0, "completions/mean_length": 90.0} for step in range(1, 9)]
    write(tmp_path / "metrics.jsonl", map(json.dumps, rows))
    assert "that a completion was rated is not proved" in said(judged(tmp_path, "trl"))
    write(tmp_path / "metrics.jsonl", (json.dumps({"step": row["step"], "loss": 1.0}) for row in rows))
    assert "rated" not in said(judged(tmp_path, "trl"))


def test_steps_of_an_earlier_process_are_no_resume(tmp_path: Path) -> None:
    first = [SKYRL.format(pid=1, step=step, reward=0.2) for step in range(1, 41)]
    write(tmp_path / "first.log", [*first, "Successfully saved checkpoint for global_step_40 to: /c"])
    loaded = [
        "Resuming from global_step: 20",
        "Successfully loaded complete checkpoint state from global_step_20",
    ]
    write(tmp_path / "second.log", loaded)
    verdict = judged(tmp_path, "skyrl", "checkpoint", steps=40)
    assert verdict.result is BLOCKED
    assert "went on from step 20" not in said(verdict)
    later = [SKYRL.format(pid=2, step=step, reward=0.2) for step in range(21, 41)]
    write(tmp_path / "second.log", [*loaded, *later])
    assert "a new process went on from step 20 to 40" in said(
        judged(tmp_path, "skyrl", "checkpoint", steps=40)
    )


def test_rewards_of_0_are_no_failure_that_ended_the_run(tmp_path: Path) -> None:
    zero = "(skyrl_entrypoint pid=2) step: {} - reward/avg_raw_reward:0.0 - policy/grad_norm:0.0"
    lines = [f"{zero.format(step)} - generate/avg_num_tokens:900.0" for step in range(1, 21)]
    write(tmp_path / "run.log", [*lines, "exit code 0"])
    text = said(judged(tmp_path, "skyrl"))
    assert "the log shows a failure" not in text
    assert "or the data is too hard" in text


def test_a_figure_of_one_value_goes_nowhere_and_a_rate_is_each_gpus() -> None:
    assert figure_text(Figure("grad norm", "grad_norm", 1.91, 1.91, steps=1)) == "1.91"
    assert figure_text(Figure("grad norm", "grad_norm", 1.91, 1.5, steps=2)) == "1.91 -> 1.5"
    assert figure_name(Figure("tokens/s", "perf/throughput", 1, 2)) == "tokens/s a GPU (perf/throughput)"


def test_fsdp_is_told_by_the_class_of_its_configuration(tmp_path: Path) -> None:
    config = (
        "(TaskRunner) {'actor_rollout_ref': {'actor': {'_target_': 'verl.workers.config.FSDPActorConfig',"
    )
    write(
        tmp_path / "train.log",
        [config, "(TaskRunner pid=4) step:1 - training/global_step:1 - actor/grad_norm:0.1"],
    )
    text = said(judged(tmp_path, "verl"))
    assert "an engine other than Megatron is set" in text
    assert "`megatron.bridge`: that it ran is not proved" not in text


def test_a_step_that_each_line_names_is_not_inferred(tmp_path: Path) -> None:
    """ms-swift's dicts name it; the one of the end does not."""
    lines = [
        f"{{'loss': {0.5 - step / 100:.4f}, 'reward': {step / 40:.3f}, 'epoch': {step / 30:.2f},"
        f" 'global_step/max_steps': '{step}/30'}}"
        for step in range(1, 31)
    ]
    write(tmp_path / "console.log", [*lines, "{'train_runtime': 812.1, 'train_loss': 0.3, 'epoch': 1.0}"])
    verdict = judged(tmp_path, steps=30)
    assert "are inferred" not in said(verdict)
    write(tmp_path / "console.log", [line.partition(", 'global_step")[0] + "}" for line in lines])
    assert "the steps of values in console.log are inferred" in said(judged(tmp_path, steps=30))


def test_a_failure_that_ended_the_run_leaves_no_word_about_its_exit_code(tmp_path: Path) -> None:
    failed = ["Traceback (most recent call last):", '  File "a.py", line 1, in <module>', "ValueError: x"]
    write(tmp_path / "out.log", [*trainer(22, 80), *failed])
    assert "exit code" not in said(judged(tmp_path, steps=80))


def test_the_steps_and_the_model_of_a_fork_of_verl_are_read(tmp_path: Path) -> None:
    rows = [{"step": step, "actor": {"grad_norm": 1.2, "pg_loss": 0.01}} for step in range(1, 5)]
    write(tmp_path / "experiment_log.jsonl", [json.dumps(row) for row in rows])
    command = "+ python3 -m verl.trainer.main config=a.yaml worker.actor.model.model_path=Qwen/Qwen2.5-VL-3B"
    write(tmp_path / "out.log", [command, "(WorkerDict pid=8) FSDP wrap policy: functools.partial()"])
    text = said(judged(tmp_path, framework="verl", steps=60))
    assert "trained steps read: 4 of 60" in text
    assert "no record of a trained step" not in text
    assert scan_facts([(tmp_path / "out.log", "out.log")]).model == "Qwen/Qwen2.5-VL-3B"


def test_end_that_no_line_states_is_not_told_as_a_bad_one(tmp_path: Path) -> None:
    steps = [f"step {at} | loss {2 - at / 100:.3f} | lr 1e-5" for at in range(10, 110, 10)]
    write(tmp_path / "train.log", ["python train.py", *steps, "saving to out/final", "done in 2311 s"])
    training = judged(tmp_path, "command", "run").deliverable("Training")
    assert training is not None
    assert training.reason.startswith("that the run ended well is not shown (would be Pass")


def skyrl(first: int, last: int) -> list[str]:
    """What newer releases of SkyRL's trainer print of each step."""
    says = "2026-06-03 04:12:20.307 | INFO     | skyrl.train.trainer:"
    return [
        line
        for step in range(first, last + 1)
        for line in (
            f"{says}postprocess_generator_output:1116 - reward/avg_pass_at_5: 0.6{step}, "
            f"reward/avg_raw_reward: 0.4{step}, reward/mean_positive_reward: 0.4{step}",
            f"{says}compute_advantages_and_returns:1226 - avg_final_rewards: 0.4{step}, "
            "avg_response_length: 230.1",
            f"{says}train:342 - Finished: 'step', time cost: 48.76s",
        )
    ]


def test_whole_checkpoint_that_skyrl_loaded_is_a_resume_without_its_other_line(tmp_path: Path) -> None:
    loaded = (
        "INFO | skyrl.train.trainer:load_checkpoints:1811 - Successfully loaded complete checkpoint state"
    )
    saved = "INFO | skyrl.trainer - Successfully saved checkpoint for global_step_{0} to: /c/{0}"
    write(tmp_path / "first.log", ["(skyrl_entrypoint pid=7) start", *skyrl(1, 14), saved.format(10)])
    second = [f"{loaded} from global_step_10", *skyrl(11, 20), saved.format(20)]
    write(tmp_path / "second.log", ["(skyrl_entrypoint pid=7) start", *second])
    verdict = judged(tmp_path, "skyrl", "checkpoint", steps=20)
    resume, training = (verdict.deliverable(name) for name in ("Resume", "Training"))
    assert resume is not None and resume.reason == "a new process went on from step 10 to 20"
    assert training is not None and "reward/avg_raw_reward" in training.reason
    assert not any("in place of" in text for text in verdict.limitations)


def test_a_checkpoint_that_only_a_listing_shows_is_whole_by_it(tmp_path: Path) -> None:
    resumed(tmp_path, 300)
    write(
        tmp_path / "listing.txt",
        ["98 out/checkpoint-300/model.safetensors", "9 out/checkpoint-300/optimizer.pt"],
    )
    verdict = judged(tmp_path, "trl", "checkpoint", steps=300)
    checkpoint = verdict.deliverable("Checkpoint")
    assert checkpoint is not None and checkpoint.status == "Pass"
    assert "that `checkpoint-300` is whole rests on `listing.txt`" in said(verdict)
    assert verdict.cause_title == "what did not pass"  # the resume is not shown, and nothing failed
