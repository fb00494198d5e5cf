"""Rules for the best point of a sweep."""

from __future__ import annotations

import math

import pytest

from jobspec.finding import JobspecError
from jobspec.metrics import Row, Table
from jobspec.sweeps.best import Rule, parse_rule


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("last(reward)", Rule("last", "reward")),
        ("highest max(val/acc@1)", Rule("max", "val/acc@1")),
        ("lowest: mean(train loss)", Rule("mean", "train loss", lowest=True)),
    ],
)
def test_a_rule_is_read(text: str, rule: Rule) -> None:
    assert parse_rule(text) == rule
    assert parse_rule(rule.text) == rule


@pytest.mark.parametrize("text", ["", "reward", "count(reward)", "last()", "last(a(b))", "best last(x)"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(JobspecError) as problem:
        parse_rule(text)
    assert problem.value.findings[0].rule == "usage.best"


def test_a_value_that_is_not_finite_is_none() -> None:
    def table(*values: float) -> Table:
        return Table(tuple(Row("x", at, value) for at, value in enumerate(values, 1)))

    assert Rule("last", "x").value(table(1.0, 3.0)) == 3.0
    assert Rule("mean", "x").value(table(1.0, 3.0)) == 2.0
    assert Rule("last", "x").value(table(1.0, math.nan)) is None
    assert Rule("max", "x").value(table(1.0, math.inf)) is None
    assert Rule("max", "y").value(table(1.0)) is None
