"""The envelope of a curve: as few points as asked for, and no extreme lost."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.metrics import Row
from jobspec.metrics.envelope import envelope, finite_points


@pytest.mark.parametrize("at", [0, 1, 50_000, 99_998, 99_999])
def test_spike_of_one_point_among_many_stays(at: int) -> None:
    points = [(step, float(step == at)) for step in range(100_000)]
    assert max(envelope(points, 400), key=lambda point: point[1]) == (at, 1.0)


@given(st.lists(st.floats(-1e9, 1e9), max_size=2000), st.integers(4, 400))
def test_envelope_is_a_short_part_of_the_curve_with_its_ends_and_extremes(
    values: list[float], limit: int
) -> None:
    points = list(enumerate(values))
    few = list(envelope(points, limit))
    assert len(few) <= limit
    assert few == sorted(set(few) & set(points))
    if points:
        shown = [value for _, value in few]
        assert (few[0], few[-1]) == (points[0], points[-1])
        assert (min(shown), max(shown)) == (min(values), max(values))


def test_extremes_stand_in_their_order() -> None:
    points = [(0, 0.0), (1, 0.0), (2, -1.0), (3, 1.0), (4, 0.0), (5, 2.0), (6, -2.0), (7, 0.0)]
    assert envelope(points, 6) == [(0, 0.0), (2, -1.0), (3, 1.0), (5, 2.0), (6, -2.0), (7, 0.0)]


def test_rows_without_a_step_count_by_their_place() -> None:
    """Steps and places of one metric could not stand on one axis."""
    rows = [Row("x", 50, 1.0), Row("x", None, 2.0), Row("x", 7, math.nan), Row("x", 7, 4.0)]
    assert finite_points(rows) == [(1, 1.0), (2, 2.0), (4, 4.0)]
    assert finite_points(rows[:1]) == [(50, 1.0)]
