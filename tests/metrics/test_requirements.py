"""Requirements: the grammar, positions of errors, and what a value that is not finite does."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.finding import JobspecError
from jobspec.metrics import Row, Table
from jobspec.metrics.requirements import FUNCTIONS, evaluate, parse_requirement

TABLE = Table(
    tuple(Row("r/mean@1", step, value, None, "m", step) for step, value in enumerate((0.2, 0.9, 0.4), 1))
)
WILD = Table((Row("loss", 1, 1.0), Row("loss", 2, math.nan), Row("loss", 3, 0.5)))


def holds(text: str, table: Table = TABLE) -> bool:
    return evaluate(parse_requirement(text), table).holds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max(r/mean@1) > 0.8", True),
        ("max(r/mean@1)>=0.9", True),
        ("max(r/mean@1) > .9", False),
        ("min(r/mean@1) == 0.2", True),
        ("mean(r/mean@1) == 0.5", True),
        ("first(r/mean@1) < 2e-1", False),
        ("last(r/mean@1) <= 0.4", True),
        ("count(r/mean@1) >= 3", True),
        ("count(nowhere) == 0", True),
        ("last(r/mean@1) != 4", True),
        ("finite(r/mean@1)", True),
        ("max(nowhere) < 1", False),
        ("finite(nowhere)", False),
    ],
)
def test_requirement_holds_as_read(text: str, expected: bool) -> None:
    assert holds(text) is expected


@pytest.mark.parametrize(
    "text", ["max(loss) < 9", "min(loss) < 9", "mean(loss) < 9", "finite(loss)", "max(loss) != 9"]
)
def test_one_nan_is_enough_to_fail(text: str) -> None:
    outcome = evaluate(parse_requirement(text), WILD)
    assert not outcome.holds
    assert outcome.reason == "1 of 3 values of `loss` are not finite: the first is nan at step 2"


def test_last_value_alone_decides_last() -> None:
    assert holds("last(loss) < 1", WILD)
    assert not holds("last(loss) != 1", Table((Row("loss", 1, math.nan),)))


@pytest.mark.parametrize("text", ["last(loss) > 1", "last(loss) != 1", "first(loss) > 1", "max(loss) > 1"])
def test_infinity_meets_no_comparison(text: str) -> None:
    outcome = evaluate(parse_requirement(text), Table((Row("loss", 1, math.inf),)))
    assert (outcome.holds, outcome.value) == (False, math.inf)


def test_mean_of_values_whose_sum_no_float_holds() -> None:
    assert holds("mean(loss) > 1e307", Table((Row("loss", 1, 1e308), Row("loss", 2, 1.5e308))))


def test_outcome_names_the_row() -> None:
    outcome = evaluate(parse_requirement("max(r/mean@1) > 0.8"), TABLE)
    assert (outcome.value, outcome.row and outcome.row.line) == (0.9, 2)


@pytest.mark.parametrize(
    ("text", "column", "match"),
    [
        ("maximum(r) > 1", 1, "`maximum` is not a function"),
        ("  top(r) > 1", 3, "`top` is not a function"),
        ("max", 4, r"`\(` and a metric name are missing"),
        ("max(r > 1", 10, r"`\)` is missing"),
        ("max() > 1", 5, "a metric name is missing"),
        ("max(r)", 7, "`max` needs a comparison"),
        ("max(r) = 1", 8, "`= 1` does not start with a comparison"),
        ("max(r) > one", 10, "`one` is not a number"),
        ("max(r) > nan", 10, "`nan` is not a number"),
        ("max(r) > ", 10, "a number is missing after `>`"),
        ("max(r) > 1 or 1", 10, "`1 or 1` is not a number"),
        ("finite(r) > 1", 11, "`finite` takes no comparison"),
        ("max(__import__('os')) > 1", 5, "is not a metric name"),
    ],
)
def test_error_says_what_and_where(text: str, column: int, match: str) -> None:
    with pytest.raises(JobspecError, match=match) as caught:
        parse_requirement(text)
    (finding,) = caught.value.findings
    assert (finding.rule, finding.column) == ("metrics.require", column)
    assert finding.fix


METRIC = st.text(st.characters(codec="utf-8", exclude_characters="()"), min_size=1).filter(str.strip)


@given(st.sampled_from([name for name in FUNCTIONS if name != "finite"]), METRIC, st.floats(-1e6, 1e6))
def test_what_is_written_is_what_is_parsed(function: str, metric: str, bound: float) -> None:
    parsed = parse_requirement(f"{function}({metric}) <= {bound!r}")
    assert (parsed.function, parsed.metric, parsed.operator, parsed.bound) == (
        function,
        metric.strip(),
        "<=",
        bound,
    )


@given(st.text(max_size=60))
def test_any_text_parses_or_is_refused_with_a_position(text: str) -> None:
    try:
        parse_requirement(text)
    except JobspecError as refused:
        assert 1 <= refused.findings[0].column <= len(text) + 1
