"""Verdicts of the TRL framework from metrics: each deliverable with what passes it and what must not."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from jobspec import frameworks
from jobspec.metrics import Table
from jobspec.verdict import Deliverable, Status
from tests.kits.framework_kit import context, evidence, plan_of, table

STEPS = 24


def judged(level: str, rows: Table, **spec: Any) -> dict[str, Deliverable]:
    plan = plan_of(context("trl", level, **spec))
    return {item.name: item for item in frameworks.get("trl").judge(evidence(plan, rows))}


def rising(step: int) -> float:
    return 0.9 - 0.7 * math.exp(-step / 6) + random.Random(step).gauss(0, 0.01)


def metrics(steps: range, reward: Any = rising, **more: Any) -> Table:
    found = {"reward": reward, "loss": lambda step: 0.1, "grad_norm": lambda step: 1.0}
    return table(**{name: {step: make(step) for step in steps} for name, make in found.items()}, **more)


# -- training ----------------------------------------------------------------------------------------


def test_every_planned_step_counts() -> None:
    item = judged("smoke", metrics(range(1, 3)))["Training"]
    assert item.status is Status.PASS
    assert "2 of 2" in item.reason


@pytest.mark.parametrize("steps", [range(1, 24), range(1, 25, 2), range(0)])
def test_missing_steps_fail(steps: range) -> None:
    item = judged("learning", metrics(steps), train={"steps": STEPS})["Training"]
    assert item.status is Status.FAIL


def test_steps_that_were_not_planned_do_not_count() -> None:
    item = judged("learning", metrics(range(1001, 1025)), train={"steps": STEPS})["Training"]
    assert item.reason.startswith("0 of 24 planned train steps ran; step 1 is the first missing one")


def test_resume_step_that_is_no_number_is_no_traceback() -> None:
    rows = metrics(range(1, 3), resume__from_step={1: math.nan})
    assert judged("smoke", rows)["Training"].status is Status.PASS


@pytest.mark.parametrize("size", [0.0, math.nan])
def test_checkpoint_without_a_size_fails(size: float) -> None:
    found = judged("checkpoint", metrics(range(1, 5), checkpoint__bytes={4: size}))["Checkpoint"]
    assert found.status is Status.FAIL
    assert "of step 4 was logged as" in found.reason


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_loss_that_is_not_finite_fails(bad: float) -> None:
    rows = metrics(range(1, 3))
    broken = Table((*rows.rows, *table(loss={2: bad}).rows))
    item = judged("smoke", broken)["Training"]
    assert item.status is Status.FAIL
    assert "`loss` of step 2" in item.reason


def test_steps_of_an_earlier_run_are_not_asked_for() -> None:
    """A run that continues a checkpoint of another run proves the steps after it."""
    rows = metrics(range(11, STEPS + 1), resume__from_step={11: 10.0})
    assert judged("learning", rows, train={"steps": STEPS})["Training"].status is Status.PASS


# -- learning ----------------------------------------------------------------------------------------


def test_rising_reward_passes() -> None:
    item = judged("learning", metrics(range(1, STEPS + 1)), train={"steps": STEPS})["Learning"]
    assert item.status is Status.PASS
    assert "p = " in item.reason
    assert "slope" in item.reason
    assert [part.value for part in item.evidence] == [rising(1), rising(STEPS)]


@pytest.mark.parametrize(
    "reward",
    [
        lambda step: 0.5,
        lambda step: 0.5 + random.Random(step).gauss(0, 0.1),
        lambda step: 1 - step / 100,
        lambda step: math.nan,
    ],
    ids=["constant", "noise", "falling", "not a number"],
)
def test_reward_that_does_not_rise_fails(reward: Any) -> None:
    item = judged("learning", metrics(range(1, STEPS + 1), reward), train={"steps": STEPS})["Learning"]
    assert item.status is Status.FAIL


def test_other_metric_can_be_asked_for() -> None:
    rows = metrics(range(1, STEPS + 1), lambda step: 0.5, score={s: rising(s) for s in range(1, STEPS + 1)})
    asked = {"learning": {"metric": "score"}}
    assert judged("learning", rows, train={"steps": STEPS}, metrics=asked)["Learning"].status is Status.PASS


# -- checkpoint and resume ---------------------------------------------------------------------------

PROOF = {
    "resume__from_step": {5: 4.0},
    "resume__optimizer_steps": {5: 4.0},
    "resume__rng_restored": {5: 1.0},
    "checkpoint__bytes": {4: 1e6, 8: 1e6},
}


def test_proven_resume_passes() -> None:
    found = judged("checkpoint", metrics(range(1, 9), **PROOF), train={"steps": 8})
    assert {item.status for item in found.values()} == {Status.PASS}
    assert set(found) == {"Training", "Checkpoint", "Resume"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"resume__from_step": {}}, "no process reported"),
        ({"resume__from_step": {5: 2.0}}, "not from the planned step 4"),
        ({"resume__optimizer_steps": {5: 0.0}}, "made 0 steps"),
        ({"resume__optimizer_steps": {}}, "made 0 steps"),
        ({"resume__rng_restored": {5: 0.0}}, "random state"),
        ({"resume__rng_restored": {}}, "random state"),
    ],
)
def test_unproven_resume_fails(change: dict[str, dict[int, float]], reason: str) -> None:
    item = judged("checkpoint", metrics(range(1, 9), **{**PROOF, **change}), train={"steps": 8})["Resume"]
    assert item.status is Status.FAIL
    assert reason in item.reason


def test_resume_without_later_steps_fails() -> None:
    found = judged("checkpoint", metrics(range(1, 6), **PROOF), train={"steps": 8})
    assert found["Resume"].status is Status.FAIL
    assert found["Training"].status is Status.FAIL


def test_checkpoint_must_be_of_the_last_step() -> None:
    rows = metrics(range(1, 9), **{**PROOF, "checkpoint__bytes": {4: 1e6}})
    assert judged("checkpoint", rows, train={"steps": 8})["Checkpoint"].status is Status.FAIL
