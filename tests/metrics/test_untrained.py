"""Steps that ran and trained nothing are named, and fail `Training`; a reward, or rounding, explains some."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jobspec.evidence.evidence import Attempt, Evidence
from jobspec.frameworks.shared.metric_deliverables import training_deliverable
from jobspec.metrics import Row, Table
from jobspec.metrics.training_health import lost_at
from jobspec.metrics.untrained import untrained
from jobspec.plan import ExpectPlan, Plan
from jobspec.verdict import Status

Function = Callable[[int], float]


def falls(step: int) -> float:
    return 2.0 - step / 30 + step % 3 / 50


def flat(step: int) -> float:
    return 2.0 + step % 3 / 50


def table(steps: int = 30, **metrics: Function) -> Table:
    return Table(
        tuple(
            Row(name.replace("__", "/"), step, function(step), None, "m.jsonl", step)
            for name, function in metrics.items()
            for step in range(1, steps + 1)
        )
    )


@pytest.mark.parametrize(
    ("metrics", "kinds"),
    [
        ({"loss": flat, "learning_rate": lambda step: 0.0}, ["zero-learning-rate"]),
        ({"loss": falls, "learning_rate": lambda step: 0.0}, []),  # it is printed with too few digits
        ({"loss": flat, "learning_rate": lambda step: 0.0 if step == 1 else 1e-6}, []),
        ({"reward": flat, "learning_rate": lambda step: 0.0}, ["zero-learning-rate"]),
        ({"loss": lambda step: 10.8249}, ["constant-loss"]),
        ({"loss": lambda step: 0.6931, "rewards__margins": lambda step: 0.0}, ["constant-loss"]),
        ({"loss": lambda step: 0.69}, []),  # two digits hide a change
        ({"loss": lambda step: 10.8249, "reward": falls}, []),
        ({"loss": flat, "grad_norm": lambda step: 0.0}, ["no-gradient"]),
        ({"loss": flat, "grad_norm": lambda step: 0.0, "reward": lambda step: 0.0}, []),
        ({"loss": lambda step: 1.1 + step % 3 / 10 if step < 12 else 0.0}, ["vanished-loss"]),
        ({"loss": falls, "grad_norm": lambda step: 0.4, "learning_rate": lambda step: 1e-5}, []),
        ({"reward": lambda step: 0.3, "learning_rate": lambda step: 1e-9 / step}, ["tiny-learning-rate"]),
        ({"loss": falls, "learning_rate": lambda step: 1e-9}, []),
    ],
)
def test_runs_that_train_nothing(metrics: dict[str, Function], kinds: list[str]) -> None:
    assert [one.kind for one in untrained(table(**metrics), {})] == kinds
    assert not list(untrained(table(5, **metrics), {}))  # a smoke test of few steps


def test_steps_that_trained_nothing_are_no_training() -> None:
    plan = Plan("", "trl", "", "", "", expect=ExpectPlan(level="smoke", steps=30))

    def judged(rate: float) -> tuple[Status, str]:
        rows = table(loss=flat, learning_rate=lambda step: rate)
        found = training_deliverable(Evidence(Path(), plan, attempts=(Attempt(1, "", metrics=rows),)), "loss")
        return found.status, found.reason

    status, reason = judged(0.0)
    assert status is Status.FAIL
    assert reason.startswith("30 of 30 planned train steps ran, but `learning_rate` is exactly 0 at all 30")
    assert judged(1e-5)[0] is Status.PASS


def test_metric_that_falls_back_at_a_resume_is_told() -> None:
    """Noise, and a rise of some steps, are not."""
    anew = table(loss=lambda step: falls(step) if step <= 20 else falls(step - 20))
    text = lost_at(anew.series("loss"), 20, falls=True)
    assert text.startswith("`loss` went from 1.5") and "at the start 1.8" in text
    assert lost_at(table(reward=lambda s: -falls(s if s <= 20 else s - 20)).series("reward"), 20, falls=False)
    bump = table(loss=lambda step: falls(step) + (0.1 if 20 < step < 24 else 0))
    for healthy in (table(loss=falls), table(loss=flat), bump, table(6, loss=falls)):
        assert lost_at(healthy.series("loss"), 20, falls=True) == ""
