"""Judges comparisons with metrics, for the report's requirements and the watch over a run. Pure."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Callable, Dict, Optional, Sequence

from jobspec.plan import TermPlan
from jobspec.runtime.base.metric_files import Row

FUNCTIONS = ("max", "min", "mean", "first", "last", "count", "finite")
OPERATORS: Dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
    ">": operator.gt, "<": operator.lt,
}  # fmt: skip


@dataclass(frozen=True)
class Judgement:
    """Whether a comparison holds, the value that it was judged by, and the row that the value stands in.

    `value` is None where nothing was logged. `wild` counts the values that are not finite where one of them
    is enough to fail; `value` and `row` are then those of the first one.
    """

    holds: bool
    value: Optional[float] = None
    row: Optional[Row] = None
    wild: int = 0


def judge(term: TermPlan, points: Sequence[Row]) -> Judgement:
    """Judge `term` on the points of its metric, which are in order (`by_step`).

    Except for `count(m) == 0`, no comparison holds for a metric that was never logged. One value that is not
    finite is enough to fail `max`, `min`, `mean` and `finite`: Python's `max` would let a NaN pass.
    """
    if term.function == "count":
        return _compare(term, float(len(points)), points[-1] if points else None)
    if not points:
        return Judgement(False)
    if term.function in ("first", "last"):
        row = points[0 if term.function == "first" else -1]
        return _compare(term, row.value, row)
    wild = [row for row in points if not math.isfinite(row.value)]
    if wild:
        return Judgement(False, wild[0].value, wild[0], len(wild))
    if term.function == "finite":
        return Judgement(True, points[-1].value, points[-1])
    if term.function == "mean":
        return _compare(term, _mean(points), points[-1])
    row = (max if term.function == "max" else min)(points, key=lambda row: row.value)
    return _compare(term, row.value, row)


def _compare(term: TermPlan, value: float, row: Optional[Row]) -> Judgement:
    # A NaN is unequal to every bound and infinity above every one: neither says anything about a metric.
    holds = math.isfinite(value) and OPERATORS[term.operator](value, term.bound)
    return Judgement(holds, value, row)


def _mean(points: Sequence[Row]) -> float:
    values = [row.value for row in points]
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # the sum is beyond the range of floats, the mean is not
        return math.fsum(value / len(values) for value in values)
