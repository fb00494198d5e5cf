"""A process of TRL that was told to go on from a checkpoint, and what its first record says of that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobspec.verdict import Deliverable, Status
from tests.judging.test_runs_as_people_have_them import judged, write

HEAD = "accelerate launch train_rloo.py --resume_from_checkpoint {}"


def records(first: int, last: int, total: int = 20) -> list[str]:
    return [
        line
        for step in range(first, last + 1)
        for line in (
            f"{{'objective/scores': {step / 100}, 'lr': {3e-6 * (1 - step / total):.6g}, "
            f"'episode': {step * 64}, 'epoch': {step / 100}}}",
            f"  1%|          | {step}/{total} [01:11<1:10:12, 71.40s/it]",
        )
    ]


def resume_of(folder: Path, given: str, second: list[str], first: str = "None") -> Deliverable:
    write(folder / "first.log", [HEAD.format(first), *records(1, 12)])
    write(folder / "second.log", [HEAD.format(given), *second])
    state = [{"step": at, "epoch": at / 100, "episode": at * 64, "lr": 1e-6} for at in range(1, 11)]
    write(
        folder / "checkpoint-10/trainer_state.json", [json.dumps({"global_step": 10, "log_history": state})]
    )
    found = judged(folder, "trl", "checkpoint", steps=20).deliverable("Resume")
    assert found is not None
    return found


@pytest.mark.parametrize("given", ["out/checkpoint-10", "True", "'out/checkpoint-10',"])
def test_process_that_began_before_its_checkpoint_did_not_resume(given: str, tmp_path: Path) -> None:
    found = resume_of(tmp_path, given, records(1, 20))
    assert found.status is Status.FAIL
    assert "first record has episode 64, epoch 0.01" in found.reason
    assert "that of step 10 has episode 640, epoch 0.1" in found.reason


@pytest.mark.parametrize(
    ("given", "begins"),
    [("out/checkpoint-10", 11), ("None", 1), ("False", 1), ("out/checkpoint-99", 1)],
)
def test_nothing_is_disproved_where_no_earlier_record_is_shown(
    given: str, begins: int, tmp_path: Path
) -> None:
    assert resume_of(tmp_path, given, records(begins, 20)).status is Status.BLOCKED


def test_first_process_that_finds_nothing_to_go_on_from_is_no_failed_resume(tmp_path: Path) -> None:
    assert resume_of(tmp_path, "True", records(11, 20), first="True").status is Status.BLOCKED


def with_files(folder: Path, step: int, scores: list[float]) -> None:
    history = [{"step": at, "epoch": at / 100, "reward": one} for at, one in enumerate(scores[:step], 1)]
    state = json.dumps({"global_step": step, "max_steps": 20, "log_history": history})
    write(folder / f"checkpoint-{step}/trainer_state.json", [state])
    for name in ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
        write(folder / f"checkpoint-{step}" / name, ["x"])


def printed(scores: list[float], first: int) -> list[str]:
    """What a Trainer prints at its usual level of logging: a bar and dicts, no line about a resume."""
    lines = ["  0%|          | 0/20 [00:00<?, ?it/s]"]
    for step, one in enumerate(scores, first):
        lines.append(f" 10%|#         | {step}/20 [01:11<1:10:12, 71.40s/it]")
        lines.append(f"{{'loss': 0.1, 'grad_norm': 0.3, 'reward': {one}, 'epoch': {step / 100}}}")
    return lines


@pytest.mark.parametrize(
    ("begin", "status", "reason"),
    [(0.31, Status.PASS, "from step 10, and saved step 20"), (0.1, Status.FAIL, "from other weights")],
)
def test_option_and_later_records_show_a_resume_that_no_line_tells(
    begin: float, status: Status, reason: str, tmp_path: Path
) -> None:
    first, second = ([start + at / 50 for at in range(10)] for start in (0.1, begin))
    write(tmp_path / "first.log", [HEAD.format("None"), *printed(first, 1)])
    write(tmp_path / "second.log", [HEAD.format("out/checkpoint-10"), *printed(second, 11)])
    for step in (10, 20):
        with_files(tmp_path, step, first + second)
    found = judged(tmp_path, "trl", "checkpoint", steps=20).deliverable("Resume")
    assert found is not None and found.status is status
    assert reason in found.reason
    assert status is Status.FAIL or "is inferred" in found.limits[-1]


def test_two_processes_in_one_log_are_told_apart_where_bar_and_epoch_go_back(tmp_path: Path) -> None:
    scores = [0.1 + at / 50 for at in range(20)]
    first, second = printed(scores[:13], 1), printed(scores[10:], 11)
    log = [HEAD.format("None"), *first, HEAD.format("out/checkpoint-10"), *second]
    write(tmp_path / "slurm-1.out", log)
    for step in (10, 20):
        with_files(tmp_path, step, scores)
    verdict = judged(tmp_path, "trl", "checkpoint", steps=20)
    resume, training = (verdict.deliverable(name) for name in ("Resume", "Training"))
    assert resume is not None and resume.status is Status.PASS
    assert training is not None and training.reason.startswith("20 of 20 planned train steps ran")
