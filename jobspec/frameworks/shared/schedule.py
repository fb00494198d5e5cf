"""When a run trains, saves and resumes, and what its files must show then: alike in several frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobspec.frameworks.base import Context
from jobspec.plan import ExpectPlan, LearningPlan


@dataclass(frozen=True)
class Schedule:
    """Steps in all, how often to save (0: never), and the step of the resume (0: none)."""

    steps: int
    save_every: int
    half: int


def schedule(context: Context, default_steps: Mapping[str, int]) -> Schedule:
    """Steps as asked or by level; saves only where asked for, or where the level needs them."""
    steps = context.spec.train.steps or default_steps[context.level.name]
    half = steps // 2 if context.level.name == "checkpoint" else 0
    every = context.spec.checkpoint.every or half or (steps if context.spec.checkpoint.dir else 0)
    return Schedule(steps, every, half)


def learning(context: Context, metric: str = "") -> LearningPlan | None:
    """The signal that the spec asks for; without one, at level `learning`, that `metric` goes up."""
    asked = context.spec.metrics.learning
    if asked is not None:
        return LearningPlan(asked.metric, asked.direction, asked.min_change)
    return LearningPlan(metric) if metric and context.level.name == "learning" else None


def expectation(context: Context, work: Schedule, metric_keys: Mapping[str, str]) -> ExpectPlan:
    """What follows from the spec and the schedule; an adapter adds its limitations and options."""
    spec = context.spec
    return ExpectPlan(
        level=context.level.name,
        steps=work.steps,
        metrics_require=spec.metrics.require,
        learning=learning(context, metric_keys["reward"]),
        files=spec.artifacts.require,
        checkpoint=work.save_every > 0,
        resume=work.half > 0,
        metric_keys=metric_keys,
    )
