"""Requirements on metrics: `max(reward) > 0.8`, `finite(loss)`. A small parser of its own, never `eval`.

    requirement = function "(" metric ")" [ operator number ]
    function    = max | min | mean | first | last | count | finite
    operator    = > | >= | < | <= | == | !=

`finite` takes no comparison; every other function needs one. A metric name is any text without parentheses:
it may hold `/`, `@`, `-` and inner spaces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from jobspec.finding import JobspecError, fail
from jobspec.metrics.table import Table
from jobspec.plan import AbortPlan, TermPlan
from jobspec.runtime.base.metric_files import Row
from jobspec.runtime.base.requirement import FUNCTIONS, OPERATORS, Judgement, judge
from jobspec.words import did_you_mean

RULE = "metrics.require"
EXAMPLE = "write it like `max(reward) > 0.8`"
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$")


@dataclass(frozen=True)
class Requirement(TermPlan):
    """A parsed requirement and its text. `operator` is empty and `bound` 0 for `finite`."""

    text: str


@dataclass(frozen=True)
class Outcome:
    """Whether a requirement holds, its deciding value, and the row of that value."""

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
    return Requirement(function, metric, sign, bound, text)


def required_metric(text: str) -> str:
    """The metric of a requirement; empty where it cannot be read."""
    try:
        return parse_requirement(text).metric
    except JobspecError:
        return ""


def parse_condition(text: str, why: str = "", fix: str = "") -> AbortPlan:
    """Parse a condition that ends a run: comparisons joined by `and`, as in `count(r) >= 3 and max(r) == 0`.

    Raises: JobspecError with rule `metrics.require`.
    """
    terms = []
    for part in re.split(r"(?<=[\d.])\s+and\s+", text):
        requirement = parse_requirement(part)
        if requirement.function == "finite":
            raise fail(
                RULE, f"`finite` cannot end a run in `{text}`", fix="compare a value, as in `last(loss) > 5`"
            )
        terms.append(
            TermPlan(requirement.function, requirement.metric, requirement.operator, requirement.bound)
        )
    return AbortPlan(text, tuple(terms), why, fix)


def prefixed(condition: AbortPlan, prefix: str) -> AbortPlan:
    """The condition with `prefix` before each metric's name: it then watches one of several trainings."""
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
    """The outcome of `requirement` on `table`; the watch over a run judges a condition in the same way."""
    judged = judge(requirement, table.series(requirement.metric))
    return Outcome(requirement, judged.holds, _reason(requirement, judged, table), judged.value, judged.row)


def _reason(requirement: Requirement, judged: Judgement, table: Table) -> str:
    metric, total = requirement.metric, len(table.series(requirement.metric))
    if judged.value is None:
        close = did_you_mean(metric, table.metrics)
        return f"`{metric}` was not found" + (f"; {close}" if close else "")
    if judged.wild:
        first = f"the first is {judged.value:g}" + (f" at step {judged.row.step}" if judged.row else "")
        return f"{judged.wild} of {total} values of `{metric}` are not finite: {first}"
    if requirement.function == "finite":
        return f"all {total} values of `{metric}` are finite"
    word = "holds" if judged.holds else "does not hold"
    comparison = f"`{requirement.operator} {requirement.bound:g}` {word}"
    return f"{requirement.function}({metric}) = {judged.value:.6g}, {comparison}"
