"""What came before or after what, in folders of several files: nothing is said of it that no file shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.judging.test_runs_as_people_have_them import BLOCKED, FAIL, PASS, judged, rising, write

BEGAN = ["***** Running training *****", "  Total optimization steps = 240"]
WENT_ON = [
    "  Continuing training from global step 120",
    "  Resuming training from checkpoint with epoch 0 and global step 120",
    " 50%|#####     | 120/240 [00:00<?, ?it/s]",
]


def attempt(place: Path, values: Sequence[float], first: int, told: Sequence[str] = ()) -> None:
    """A log of the Trainer: a dict each 4 steps, and its bar each 20."""
    lines = [*BEGAN, *told]
    for step, value in enumerate(values):
        done = first + 4 * (step + 1)
        lines.append(str({"loss": 0.01, "grad_norm": 0.3, "reward": value, "epoch": done / 480}))
        lines += [] if done % 20 else [f" 8%|#    | {done}/240 [07:06<1:18:06, 21.30s/it]"]
    write(place, lines)


@pytest.mark.parametrize("told", WENT_ON)
def test_resumed_log_goes_on_behind_the_step_that_it_names(told: str, tmp_path: Path) -> None:
    values = rising(60)
    attempt(tmp_path / "attempt1.out", values[:38], 0)
    attempt(tmp_path / "attempt2.out", values[30:], 120, [told])
    verdict = judged(tmp_path, "trl", "learning", steps=240, learning="reward")
    said = [item.reason for item in verdict.deliverables]
    assert any("240 of 240 planned train steps ran, logged every 4 steps" in reason for reason in said)
    assert verdict.result is PASS and any(" of 60), " in reason for reason in said)
    assert not verdict.figures, "steps are inferred in two logs"


def test_logs_that_both_count_from_the_start_are_not_put_together(tmp_path: Path) -> None:
    values = rising(60)
    attempt(tmp_path / "attempt1.out", values[:38], 0)
    attempt(tmp_path / "attempt2.out", values[30:], 120)
    verdict = judged(tmp_path, "trl", "learning", steps=240, learning="reward")
    unsure = [item.name for item in verdict.deliverables if "the order of their values" in item.reason]
    assert (verdict.result, unsure, verdict.figures) == (BLOCKED, ["Training", "Learning"], ())


def test_line_without_a_time_in_another_file_has_no_place_among_the_steps(tmp_path: Path) -> None:
    """A shell's output: nvidia-smi tells no time, and what is below it is of another command."""
    lost = "Unable to determine the device handle for GPU0000:65:00.0: Unknown Error"
    kernel = "[Mon Sep 21 {} 2026] NVRM: {}"
    write(
        tmp_path / "dmesg.txt",
        ["$ nvidia-smi", lost, "$ dmesg -T", kernel.format("12:58:44", "loading NVIDIA UNIX Kernel Module")],
    )
    steps = [f"2026-09-21 14:{i:02}:00 step {i}/40 | loss {2 - 0.01 * i:.3f}" for i in range(1, 21)]
    write(tmp_path / "train.log", steps)
    verdict = judged(tmp_path, steps=40)
    assert not any("followed" in finding.what or "went on" in finding.fix for finding in verdict.findings)


def test_exception_of_the_chain_that_ended_the_run_is_no_noise(tmp_path: Path) -> None:
    chain = [
        "Traceback (most recent call last):",
        '  File "/src/utils.py", line 543, in get_ray_pg_ready_with_timeout',
        "    ray.get(pg.ready(), timeout=timeout)",
        "ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready.",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        "RuntimeError: Failed to create placement group with 16 bundles (requiring 16 GPUs, 16 CPUs total)",
    ]
    write(tmp_path / "train.log", [*chain, "exit code 1"])
    verdict = judged(tmp_path, steps=40)
    assert verdict.first_cause is not None and verdict.first_cause.kind == "ray-resources"
    assert "had no place" not in verdict.first_cause.why
    assert not verdict.findings


def test_loss_that_is_0_from_the_second_record_on_is_said_to_be_0(tmp_path: Path) -> None:
    rows = ({"step": step, "loss": 1.7328 if step == 8 else 0.0} for step in range(8, 377, 8))
    write(tmp_path / "metrics.jsonl", map(json.dumps, rows))
    verdict = judged(tmp_path, steps=376, learning="loss")
    told = " ".join(item.reason for item in verdict.deliverables)
    assert verdict.result is FAIL
    assert "`loss` was 1.73 at step 8 and is exactly 0 from step 16 to the end" in told
    assert "beyond chance" not in told and "standard errors" not in told


def test_log_goes_on_behind_the_file_that_names_its_steps(tmp_path: Path) -> None:
    """A trainer's state was last saved at step 80; the log of the same run goes to step 152."""
    values = rising(38)
    attempt(tmp_path / "train.log", values, 0)
    history = [{"step": 4 * at, "loss": 0.01, "reward": value} for at, value in enumerate(values[:20], 1)]
    state = {"global_step": 80, "max_steps": 240, "logging_steps": 4, "log_history": history}
    write(tmp_path / "checkpoint-80" / "trainer_state.json", [json.dumps(state)])
    said = " ".join(item.reason for item in judged(tmp_path, "trl", steps=240).deliverables)
    assert "step 152 of 240 planned train steps is the last one" in said


STOPPED = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-05-20T22:41:07 DUE TO TIME LIMIT ***"
NO_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.64 GiB."


@pytest.mark.parametrize(
    ("name", "told", "kind"),
    [
        ("second.log", "  Continuing training from global step 120", "gpu-memory"),
        ("second.log", "[train] resuming from /ckpt/checkpoint-120", "gpu-memory"),
        ("second.log", "resume: no checkpoint was found, starting at step 0", "time-limit"),
        ("z_eval.log", "resuming from /ckpt/checkpoint-120", "time-limit"),
    ],
)
def test_end_of_an_earlier_process_is_no_cause_where_another_went_on(
    name: str, told: str, kind: str, tmp_path: Path
) -> None:
    attempt(tmp_path / "first.log", rising(38), 0)
    with (tmp_path / "first.log").open("a") as file:
        file.write(f"{STOPPED}\n")
    write(tmp_path / name, [*BEGAN, told, NO_MEMORY, "exit code 1"])
    cause = judged(tmp_path, "trl", "smoke", steps=240).first_cause
    assert cause is not None and cause.kind == kind
