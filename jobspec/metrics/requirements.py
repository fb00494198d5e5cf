"""Requirements on metrics: `max(reward) > 0.8`, `finite(loss)`. A small parser of its own, never `eval`.

    requirement = function "(" metric ")" [ operator number ]
    function    = max | min | mean | first | last | count | finite
    operator    = > | >= | < | <= | == | !=

`finite` takes no comparison, all others need one. A metric name is any text without parentheses, so it may
hold `/`, `@`, `-` and spaces inside.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from jobspec.finding import JobspecError, fail
from jobspec.metrics.table import Row, Table
from jobspec.plan import AbortPlan, TermPlan
from jobspec.words import did_you_mean

FUNCTIONS = ("max", "min", "mean", "first", "last", "count", "finite")
OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
    ">": operator.gt, "<": operator.lt,
}  # fmt: skip
RULE = "metrics.require"
EXAMPLE = "write it like `max(reward) > 0.8`"
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$")


@dataclass(frozen=True)
class Requirement:
    """A parsed requirement. `operator` is empty and `bound` 0 for `finite`."""

    text: str
    function: str
    metric: str
    operator: str = ""
    bound: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """Whether a requirement holds, the value it was judged by, and the row that the value stands in."""

    requirement: Requirement
    holds: bool
    reason: str
    value: float | None = None
    row: Row | None = None


def parse_requirement(text: str) -> Requirement:
    """Parse one requirement.

    Raises: JobspecError with rule `metrics.require`; `column` counts from 1 within `text`.
    """
    opening, closing = text.find("("), text.rfind(")")
    function = text[: opening if opening >= 0 else len(text)].strip()
    if function not in FUNCTIONS:
        what = f"`{function or text}` is not a function"
        fix = did_you_mean(function, FUNCTIONS) or f"use one of {', '.join(FUNCTIONS)}"
        raise _error(text, _skip(text, 0), what, fix)
    if opening < 0:
        raise _error(text, len(text), f"`(` and a metric name are missing after `{function}`", EXAMPLE)
    if closing < opening:
        raise _error(text, len(text), "`)` is missing", EXAMPLE)
    metric = text[opening + 1 : closing].strip()
    if not metric:
        raise _error(text, opening + 1, "a metric name is missing between `(` and `)`", EXAMPLE)
    if "(" in metric or ")" in metric:
        raise _error(text, opening + 1, f"`{metric}` is not a metric name", EXAMPLE)
    sign, bound = _parse_comparison(text, closing + 1, function)
    return Requirement(text, function, metric, sign, bound)


def parse_condition(text: str, why: str = "", fix: str = "") -> AbortPlan:
    """Parse a condition that ends a run: comparisons joined by `and`, as in `count(r) >= 3 and max(r) == 0`.

    Raises: JobspecError with rule `metrics.require`.
    """
    terms = []
    for part in re.split(r"(?<=[\d.])\s+and\s+", text):
        found = parse_requirement(part)
        if found.function == "finite":
            raise fail(
                RULE, f"`finite` cannot end a run in `{text}`", fix="compare a value, as in `last(loss) > 5`"
            )
        terms.append(TermPlan(found.function, found.metric, found.operator, found.bound))
    return AbortPlan(text, tuple(terms), why, fix)


def prefixed(condition: AbortPlan, prefix: str) -> AbortPlan:
    """The condition on metrics whose names begin with `prefix`: on one of several trainings of a run."""
    terms = tuple(replace(term, metric=f"{prefix}{term.metric}") for term in condition.terms)
    text = " and ".join(f"{term.function}({term.metric}) {term.operator} {term.bound:.12g}" for term in terms)
    return replace(condition, text=text, terms=terms)


def _parse_comparison(text: str, start: int, function: str) -> tuple[str, float]:
    at = _skip(text, start)
    if at == len(text):
        if function == "finite":
            return "", 0.0
        raise _error(text, at, f"`{function}` needs a comparison", EXAMPLE)
    if function == "finite":
        raise _error(text, at, "`finite` takes no comparison", "end the requirement after `)`")
    sign = next((sign for sign in OPERATORS if text.startswith(sign, at)), None)
    if sign is None:
        what = f"`{text[at:]}` does not start with a comparison"
        raise _error(text, at, what, f"use one of {' '.join(OPERATORS)}")
    at = _skip(text, at + len(sign))
    number = text[at:].strip()
    if not _NUMBER.match(number):
        what = f"`{number}` is not a number" if number else f"a number is missing after `{sign}`"
        raise _error(text, at, what, EXAMPLE)
    return sign, float(number)


def _skip(text: str, at: int) -> int:
    return at + len(text[at:]) - len(text[at:].lstrip())


def _error(text: str, at: int, what: str, fix: str) -> JobspecError:
    return fail(RULE, f"{what} in `{text}`", f"column {at + 1} of the requirement", fix, column=at + 1)


def evaluate(requirement: Requirement, table: Table) -> Outcome:
    """Judge `requirement` on `table`.

    A metric that was never logged does not hold, `count(m) == 0` apart. For `max`, `min` and `mean` one value
    that is not finite is enough to fail: Python's `max` would let a NaN pass.
    """
    series = table.series(requirement.metric)
    if requirement.function == "count":
        return _compared(requirement, float(len(series)), series[-1] if series else None)
    if not series:
        close = did_you_mean(requirement.metric, table.metrics)
        reason = f"`{requirement.metric}` was never logged" + (f"; {close}" if close else "")
        return Outcome(requirement, False, reason)
    wild = [row for row in series if not math.isfinite(row.value)]
    if wild and requirement.function not in ("first", "last"):
        reason = f"{len(wild)} of {len(series)} values of `{requirement.metric}` are not finite"
        return Outcome(requirement, False, reason, wild[0].value, wild[0])
    if requirement.function == "finite":
        reason = f"all {len(series)} values of `{requirement.metric}` are finite"
        return Outcome(requirement, True, reason, series[-1].value, series[-1])
    if requirement.function == "mean":
        return _compared(requirement, math.fsum(row.value for row in series) / len(series), series[-1])
    row = _pick(requirement.function, series)
    return _compared(requirement, row.value, row)


def _pick(function: str, series: tuple[Row, ...]) -> Row:
    if function == "first":
        return series[0]
    if function == "last":
        return series[-1]
    return (max if function == "max" else min)(series, key=lambda row: row.value)


def _compared(requirement: Requirement, value: float, row: Row | None) -> Outcome:
    # Every comparison with a NaN is false but `!=`, which must not turn one into a pass.
    holds = not math.isnan(value) and OPERATORS[requirement.operator](value, requirement.bound)
    word = "holds" if holds else "does not hold"
    found = f"{requirement.function}({requirement.metric}) = {value:.6g}"
    reason = f"{found}, `{requirement.operator} {requirement.bound:g}` {word}"
    return Outcome(requirement, holds, reason, value, row)
