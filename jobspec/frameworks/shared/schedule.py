"""When a run trains, saves and resumes, and what its files must show: alike in several frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobspec.frameworks.base import Context, Level
from jobspec.plan import ExpectPlan, LearningPlan

if TYPE_CHECKING:
    from jobspec.spec.job import Metrics

ONE_SEED = "one seed: the size of the effect may differ with another"  # of levels that test learning


@dataclass(frozen=True)
class Schedule:
    """Steps in all, how often to save (0: never), and the step of the resume (0: none)."""

    steps: int
    save_every: int = 0
    half: int = 0

    @property
    def commands(self) -> tuple[tuple[str, int], ...]:
        """Name and last step of each command: one that trains, and with a resume a second one."""
        return (("train", self.half), ("resume", self.steps)) if self.half else (("train", self.steps),)


def schedule(context: Context, default_steps: Mapping[str, int]) -> Schedule:
    """The spec's steps or the level's; saves only where the spec or the level needs them."""
    steps = context.spec.train.steps or default_steps[context.level.name]
    half = steps // 2 if context.level.name == "checkpoint" else 0
    every = context.spec.checkpoint.every or half or (steps if context.spec.checkpoint.dir else 0)
    return Schedule(steps, every, half)


def learning(metrics: Metrics, level: str, metric: str = "") -> LearningPlan | None:
    """The spec's own signal; at level `learning` without one, a rise of `metric`."""
    signal = metrics.learning
    if signal is not None:
        return LearningPlan(signal.metric, signal.direction, signal.min_change)
    return LearningPlan(metric) if metric and level == "learning" else None


def expectation(context: Context, planned: Schedule, metric_keys: Mapping[str, str]) -> ExpectPlan:
    """The expectations from the spec and the schedule; an adapter adds its limitations and options."""
    spec = context.spec
    return ExpectPlan(
        level=context.level.name,
        steps=planned.steps,
        metrics_require=spec.metrics.require,
        learning=learning(spec.metrics, context.level.name, metric_keys["reward"]),
        files=spec.artifacts.require,
        checkpoint=planned.save_every > 0,
        resume=planned.half > 0,
        metric_keys=metric_keys,
    )


def level_expectation(
    level: Level, variants: tuple[str, ...], steps: int, metric_keys: Mapping[str, str]
) -> ExpectPlan:
    """The expectations from the level alone, for a run without a spec (`Framework.expect`)."""
    return ExpectPlan(
        level=level.name,
        variants=variants,
        steps=steps,
        learning=LearningPlan(metric_keys["reward"]) if level.name == "learning" else None,
        checkpoint=level.name == "checkpoint",
        resume=level.name == "checkpoint",
        metric_keys=metric_keys,
    )
