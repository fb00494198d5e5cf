"""Files of one folder that are of several runs."""

from __future__ import annotations

import math

import pytest

from jobspec.metrics import Row, Table
from jobspec.metrics.several_runs import differ, numberings, several_runs

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("one", "other", "unlike"),
    [
        ([1, 2, 3, 4, NAN, NAN], [1, 2, 3, 4, NAN, NAN], False),
        ([NAN] * 6, [NAN] * 6, False),
        ([NAN] * 6, [1, 2, 3, 4, 5, 6], True),
        ([1, 2, NAN, NAN, NAN, NAN], [1, 2, 3, 4, 5, 6], True),
        ([INF] * 6, [INF] * 6, False),
        ([INF] * 6, [-INF] * 6, True),
        ([1.0] * 6, [1.005] * 6, False),
        ([1.0] * 6, [1.02] * 6, True),
    ],
)
def test_same_values_are_no_other_run_though_they_are_no_numbers(
    one: list[float], other: list[float], unlike: bool
) -> None:
    assert differ(dict(enumerate(one)), dict(enumerate(other))) is unlike


def test_steps_that_are_counted_otherwise_make_no_other_run() -> None:
    """A console's bar stands one step behind; a log holds the last part of what a file holds."""
    values = {2 * step: 1.0 / (step + 1) for step in range(20)}
    behind = {max(0, step - 2): value for step, value in values.items() if step}
    assert not differ(values, behind)
    assert not differ(values, {step - 10: value for step, value in values.items() if step >= 10})
    assert differ(values, {step: 2 * value for step, value in values.items()})


def rows(source: str, steps: range, value: float) -> list[Row]:
    return [Row("loss", at, value * (1 + at % 3 / 9), None, source, 10 * at) for at in steps]


def test_run_that_is_written_below_another_is_one_of_its_own() -> None:
    """Where it ends earlier, the later steps are of the one before; a resume goes on near the last step."""
    first, short, whole = (rows("a.log", range(1, last), at) for last, at in ((41, 1), (21, 2), (41, 2)))
    parts = numberings([*first, *(row._replace(line=500 + (row.line or 0)) for row in short)])
    assert list(parts) == ["a.log from line 10 on", "a.log from line 510 on"]
    assert [len(part) for part in parts.values()] == [40, 20]
    for healthy in ([*first, *whole], [*first, *rows("a.log", range(30, 51), 2)], [*first, *first[:20]]):
        assert list(numberings(healthy)) == ["a.log"]


def test_steps_of_a_console_that_are_those_of_a_file_are_compared() -> None:
    file, console = Table(tuple(rows("s.json", range(1, 41), 1))), rows("a.log", range(1, 41), 2)
    (found,) = several_runs([file, Table(tuple(console), inferred=("a.log",))])
    assert "`s.json` and `a.log` hold other values of `loss`" in found.what
    assert not several_runs([file, Table(tuple(console[:20]), inferred=("a.log",))])  # it may be a resume's
