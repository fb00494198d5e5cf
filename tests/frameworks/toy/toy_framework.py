"""Framework `toy`: a policy over a few arms, trained by policy gradient in one small program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.finding import Finding, error
from jobspec.frameworks.base import Context, FrameworkPlan, Level
from jobspec.frameworks.shared.known_variants import unknown_variants
from jobspec.frameworks.shared.metric_deliverables import (
    learning_deliverable,
    row_item,
    training_deliverable,
)
from jobspec.frameworks.shared.owned_keys import owned_key
from jobspec.frameworks.shared.schedule import Schedule, expectation, level_expectation
from jobspec.frameworks.shared.step_rules import too_few_steps
from jobspec.frameworks.shared.unused_keys import unused_keys
from jobspec.plan import CommandPlan, ExpectPlan
from jobspec.verdict import Deliverable, Status
from jobspec.words import did_you_mean, one_of

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence

NOT_PROVED = ("arms with fixed odds stand for no other task", "one process trained: nothing was parallel")
LEVELS = (
    Level("smoke", 0, "the planned steps ran with finite metrics", ("nothing about learning", *NOT_PROVED)),
    Level("learning", 1, "the reward rose beyond its noise, and the best arm won", ("one seed", *NOT_PROVED)),
)
DEFAULT_STEPS = {"smoke": 2, "learning": 40}
METRIC_KEYS = {"reward": "reward", "loss": "loss", "grad norm": "grad_norm"}  # name in reports -> as logged
OPTIONS = {"arms": 4, "rate": 1.0}  # what `train.overrides` may set
OWNED = {"steps": "train.steps", "seed": "train.seed"}  # option -> the spec's key that it is set from
UNUSED = ("model", "data", "train.workers", "train.reward", "checkpoint.every", "checkpoint.dir")
TRAINER = Path(__file__).with_name("toy_train.py")


def steps_of(context: Context) -> int:
    return context.spec.train.steps or DEFAULT_STEPS[context.level.name]


class ToyFramework:
    name = "toy"
    summary = "a policy over a few arms, by policy gradient; needs neither GPUs nor packages"
    levels = LEVELS

    def validate(self, context: Context) -> Iterator[Finding]:
        yield from too_few_steps(context.level.name, "toy.steps", steps_of(context), better=40)
        yield from unknown_variants(context, "toy.variant", LEVELS)
        yield from unused_keys(context, "toy.unused-key", UNUSED, "the trainer has no such thing")
        for key, value in context.spec.train.overrides.items():
            path = f"train.overrides.{key}"
            if key in OWNED:
                yield owned_key("toy.owned", key, OWNED[key])
            elif key not in OPTIONS:
                fix = did_you_mean(key, OPTIONS) or f"use {one_of(OPTIONS)}"
                yield error("toy.option", f"the trainer has no option `{key}`", fix=fix, path=path)
            elif type(value) not in (int, type(OPTIONS[key])) or value <= 0:
                fix = f"write a number above 0, such as {OPTIONS[key]}"
                yield error("toy.value", f"`{key}` is {value!r}", fix=fix, path=path)

    def plan(self, context: Context) -> FrameworkPlan:
        train, steps = context.spec.train, steps_of(context)
        options = {**OPTIONS, **train.overrides, "steps": steps, "seed": train.seed or 0}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        return FrameworkPlan(
            commands=(CommandPlan("train", (context.container.python, str(TRAINER), *words)),),
            ray_mode="none",
            expect=expectation(context, Schedule(steps), METRIC_KEYS),
        )

    def expect(self, level: Level, variants: tuple[str, ...] = (), steps: int = 0) -> ExpectPlan:
        return level_expectation(level, variants, steps, METRIC_KEYS)

    def judge(self, evidence: Evidence) -> Iterable[Deliverable]:
        yield training_deliverable(evidence, "reward")
        if evidence.plan.expect.level == "learning":
            yield learning_deliverable(evidence)
            yield judge_policy(evidence)


def judge_policy(evidence: Evidence) -> Deliverable:
    """`Pass` when the best arm was more likely at the end than all others together."""
    rows = evidence.metrics.series("best_arm")
    if not rows:
        return Deliverable("Policy", Status.FAIL, reason="no step logged `best_arm`")
    status = Status.PASS if rows[-1].value > 0.5 else Status.FAIL
    reason = f"the best arm had a share of {rows[-1].value:.2f} at the end"
    return Deliverable("Policy", status, (row_item(rows[-1]),), reason)
