"""The maintained scripts' metric conditions, evaluated again by jobspec. Pure.

Their own `tests/check_metrics.py` compares with Python's `max` and `min`, which pass over a NaN that is not
the first value. Here one value that is not finite fails every condition on its metric.
Source: NeMo-RL at 7ea279ab, `tests/check_metrics.py`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from jobspec.frameworks.nemo_rl.variant import MetricCheck
from jobspec.metrics import Row, Table

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
}


@dataclass(frozen=True)
class Outcome:
    """Whether a condition holds, and the row that decided. `logged` is False where its metric is missing."""

    check: MetricCheck
    holds: bool
    reason: str
    row: Row | None = None
    logged: bool = True


def evaluate(check: MetricCheck, table: Table) -> Outcome:
    """What `table` says about one condition."""
    rows = [row for row in table.series(check.metric) if row.step is not None]
    if not rows:
        return Outcome(check, False, f"`{check.metric}` was never logged", logged=False)
    bad = next((row for row in rows if not math.isfinite(row.value)), None)
    if bad is not None:
        reason = f"`{check.metric}` of step {bad.step} is {bad.value}, so `{check.text}` does not hold"
        return Outcome(check, False, reason, bad)
    if check.reduce in ("at", "has"):
        row = next((row for row in rows if row.step == int(check.argument)), None)
        if row is None:
            reason = f"`{check.metric}` of step {check.argument:g} was not logged"
            return Outcome(check, False, reason, rows[-1], logged=False)
        if check.reduce == "has":
            return Outcome(check, True, f"`{check.text}` holds", row)
        return _compared(check, row.value, row)
    value, row = _reduce(check, rows)
    return _compared(check, value, row)


def _reduce(check: MetricCheck, rows: Sequence[Row]) -> tuple[float, Row]:
    """The value and the row to look at: the extreme one, for a mean or a share the one farthest out."""
    values = [row.value for row in rows]
    highest = max(rows, key=lambda row: row.value)
    if check.reduce == "min":
        return min(values), min(rows, key=lambda row: row.value)
    if check.reduce == "max":
        return max(values), highest
    if check.reduce == "mean":
        return fmean(values), highest
    if check.reduce == "median":
        return median(values), highest
    return sum(value >= check.argument for value in values) / len(values), highest


def _compared(check: MetricCheck, value: float, row: Row) -> Outcome:
    holds = OPERATORS[check.op](value, check.limit)
    word = "holds" if holds else "does not hold"
    return Outcome(check, holds, f"`{check.text}` {word}: {value:.6g}", row)
