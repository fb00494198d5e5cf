"""What logged metrics prove of a run's steps, where the log names none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobspec.evidence.evidence import Attempt, Checkpoint, Evidence
from jobspec.frameworks.shared.metric_deliverables import training_deliverable
from jobspec.metrics import Row, Table
from jobspec.verdict import Status
from tests.kits.verdict_kit import PLAN


def evidence(saved: int, inferred: tuple[str, ...] = ("a.log",), foreign: bool = True) -> Evidence:
    """Ten records of a run that was to do 40 steps, and a checkpoint; `inferred` logs name no step."""
    rows = tuple(Row("loss", step, 1 / step, source="a.log", line=step) for step in range(1, 11))
    plan = replace(PLAN, expect=replace(PLAN.expect, steps=40))
    attempts = (Attempt(1, "a", metrics=Table(rows, planned=40, inferred=inferred)),)
    checkpoints = (Checkpoint("/r/checkpoint", saved),)
    return Evidence(Path("/r"), plan, attempts=attempts, checkpoints=checkpoints, foreign=foreign)


def test_checkpoint_of_a_later_step_shows_that_records_are_missing() -> None:
    found = training_deliverable(evidence(saved=30), "loss")
    assert found.status is Status.BLOCKED
    assert found.reason == (
        "10 records were read and no step's number beside them, and a checkpoint is of a later step than"
        " their count: the step of the last one is not proved"
    )


@pytest.mark.parametrize(
    "case",
    [evidence(30, foreign=False), evidence(30, inferred=()), evidence(10)],
    ids=["a run of ours", "steps that the log names", "a checkpoint within the records"],
)
def test_steps_that_nothing_belies_are_counted(case: Evidence) -> None:
    reason = training_deliverable(case, "loss").reason
    assert "10 of 40 " in reason or "10 records of train steps were read, and no step's number" in reason
    assert reason.endswith("step 11 is the first missing one")
