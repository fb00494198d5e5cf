"""Whether a level has enough steps. Each adapter has its own rule id."""

from __future__ import annotations

from collections.abc import Iterator

from jobspec.finding import Finding, error
from jobspec.metrics.learning_signal import MIN_POINTS


def too_few_steps(level: str, rule: str, steps: int, better: int = 0) -> Iterator[Finding]:
    """An error when the level cannot prove its claim with so few `steps`; the fix recommends `better`."""
    if level == "learning" and steps < MIN_POINTS:
        what = f"level `learning` with {steps} train steps cannot tell a trend from noise"
        fix = f"use {MIN_POINTS} or more" + (f", better {better}" if better else "")
        yield error(rule, what, fix=fix, path="train.steps")
    if level == "checkpoint" and steps < 2:
        what = "level `checkpoint` needs a step before the resume and one after it"
        yield error(rule, what, fix="use `train.steps` of 2 or more", path="train.steps")
