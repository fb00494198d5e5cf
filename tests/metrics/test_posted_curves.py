"""Curves as people post them: each gets the answer that was written down before any code saw it."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.evidence.evidence import Attempt, Evidence
from jobspec.frameworks.shared.metric_deliverables import learning_deliverable
from jobspec.metrics import Row, Table
from jobspec.metrics.training_health import troubles
from jobspec.plan import ExpectPlan, LearningPlan, Plan
from tests.metrics.further_curves import FURTHER
from tests.metrics.posted_curves import POSTED, Posted

CURVES = POSTED | FURTHER


def table(posted: Posted) -> Table:
    rows = []
    for name, values in posted.metrics.items():
        points = values if isinstance(values, dict) else dict(enumerate(values, 1))
        rows += [Row(name, step, value, None, "m.jsonl", step) for step, value in points.items()]
    return Table(tuple(rows))


@pytest.mark.parametrize("name", CURVES)
def test_posted_curve_gets_the_answer_written_down_before(name: str) -> None:
    posted = CURVES[name]
    metrics = table(posted)
    plan = Plan(
        name="r", framework="trl", cluster="local", scheduler="local", mode="ray",
        expect=ExpectPlan(learning=LearningPlan(posted.learnt)),
    )  # fmt: skip
    found = learning_deliverable(Evidence(Path("/r"), plan, attempts=(Attempt(1, "a", metrics=metrics),)))
    kinds = {trouble.kind for trouble in troubles(metrics)}
    assert (str(found.status), kinds) == (posted.learning, posted.shows), found.reason
