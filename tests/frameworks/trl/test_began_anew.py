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
