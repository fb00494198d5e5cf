"""Curves: each kind leaves nothing of its own shape, and the criterion picks the kind behind the values."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.metrics.curve_fit import best, curves, residuals, sigmoid_residuals, spline_residuals, staircase


def spread(values: list[float]) -> float:
    return max(map(abs, values))


@given(st.lists(st.floats(-5, 5), min_size=4, max_size=4), st.integers(10, 60))
def test_cubic_leaves_no_residual(factors: list[float], count: int) -> None:
    cubic = [sum(f * (i / count) ** power for power, f in enumerate(factors)) for i in range(count)]
    assert spread(residuals(cubic, 3)) < 1e-8
    assert spread(spline_residuals(cubic, 3)) < 1e-8


@pytest.mark.parametrize("middle", [-0.6, 0.0, 0.37, 1.3])
@pytest.mark.parametrize("width", [0.13, 0.4, 1.1])
def test_sigmoid_leaves_next_to_nothing(middle: float, width: float) -> None:
    values = [3 - 2 * math.tanh((2 * i / 49 - 1 - middle) / width) for i in range(50)]
    assert spread(sigmoid_residuals(values)) < 0.01


@given(st.lists(st.floats(-1e3, 1e3), min_size=30, max_size=60), st.sampled_from([3, 4, 6]))
def test_spline_is_a_projection(values: list[float], intervals: int) -> None:
    """What is left of what is left is the same: the fit is least squares."""
    rest = spline_residuals(values, intervals)
    again = spline_residuals(rest, intervals)
    assert spread([a - b for a, b in zip(rest, again, strict=True)]) < 1e-8
    assert abs(math.fsum(rest)) < 1e-7


@pytest.mark.parametrize("count", [24, 100])
def test_flat_noise_takes_the_fewest_parameters(count: int) -> None:
    draw = random.Random(count)
    found = [best(curves([draw.gauss(0, 1) for _ in range(count)])).parameters for _ in range(40)]
    assert found.count(2) >= 30
    assert max(found) <= 6


def test_criterion_knows_line_sigmoid_and_waves() -> None:
    draw = random.Random(1)
    line = [i / 10 + draw.gauss(0, 0.3) for i in range(60)]
    rise = [math.tanh((i - 30) / 4) + draw.gauss(0, 0.1) for i in range(60)]
    wave = [math.sin(i / 5) + draw.gauss(0, 0.1) for i in range(60)]
    assert best(curves(line)).parameters == 2
    assert best(curves(rise)) == curves(rise)[3]
    assert best(curves(wave)).parameters >= 6


@pytest.mark.parametrize("value", [0.0, 0.1, 1e-300, 1e100])
def test_constants_are_followed_exactly(value: float) -> None:
    assert best(curves([value] * 20)).squares == 0


# -- staircases ----------------------------------------------------------------------------------------


def levels(*heights: float, width: int = 20) -> list[float]:
    return [height for height in heights for _ in range(width)]


@pytest.mark.parametrize("heights", [(0, 1, 2, 3, 4), (9, 5, 4, 3, 1, 0), (0.1, 0.2, 0.9, 1.5, 1.6, 7)])
def test_staircase_leaves_nothing_of_its_own_shape(heights: tuple[float, ...]) -> None:
    values = levels(*heights)
    found = staircase(values)
    assert found is not None
    assert spread(list(found.rest)) < 1e-9
    assert found.parameters == 2 * (len(heights) - 1) + 1


@pytest.mark.parametrize(
    "heights",
    [(0, 1), (0, 1, 2, 3), (0, 1, 2, 1, 2, 3, 4), (5, 5, 5)],
    ids=["one jump", "three jumps", "a jump back", "none"],
)
def test_jumps_that_chance_explains_are_no_staircase(heights: tuple[float, ...]) -> None:
    draw = random.Random(3)
    assert staircase([value + draw.gauss(0, 0.05) for value in levels(*heights)]) is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=80))
def test_any_values_have_a_staircase_or_none(values: list[float]) -> None:
    found = staircase(values)
    assert found is None or len(found.rest) == len(values)
