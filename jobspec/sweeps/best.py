"""The rule by which one point of a sweep is the best: `last(reward)`, `lowest last(loss)`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from jobspec.finding import fail
from jobspec.metrics.table import Table
from jobspec.plan import TermPlan
from jobspec.runtime.base.requirement import judge
from jobspec.words import did_you_mean

FUNCTIONS = ("max", "min", "mean", "first", "last")
_RULE = re.compile(r"\s*(?:(highest|lowest)[\s:]+)?(\w+)\s*\(([^()]+)\)\s*")


@dataclass(frozen=True)
class Rule:
    """The highest value of a function of a metric is best, or the lowest."""

    function: str
    metric: str
    lowest: bool = False

    @property
    def text(self) -> str:
        return f"{'lowest' if self.lowest else 'highest'} {self.function}({self.metric})"

    def value(self, table: Table) -> float | None:
        """The point's value by this rule; None where the metric was never logged or is not finite."""
        judged = judge(TermPlan(self.function, self.metric, "==", 0.0), table.series(self.metric))
        value = judged.value
        return None if judged.wild or value is None or not math.isfinite(value) else value


def parse_rule(text: str) -> Rule:
    """Raises: JobspecError for a text that is no rule."""
    match = _RULE.fullmatch(text)
    if match is None or match[2] not in FUNCTIONS:
        why = did_you_mean(match[2], FUNCTIONS) if match else ""
        fix = "write it like `last(reward)` or `lowest last(loss)`; functions are " + ", ".join(FUNCTIONS)
        raise fail("usage.best", f"`{text}` is no rule for the best point", why, fix)
    return Rule(match[2], match[3].strip(), match[1] == "lowest")
