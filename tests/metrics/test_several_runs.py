"""Files of one folder that are of several runs."""

from __future__ import annotations

import math

import pytest

from jobspec.metrics.several_runs import differ

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
