"""Two ways to explain a series: each recognises its own, and each fit is the least-squares one."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.metrics.curve_fit import broken_rise, memory_evidence, monotone, rises, sigmoid_residuals

series = st.lists(st.floats(-1e3, 1e3), min_size=8, max_size=40)


def autoregressive(keep: float, count: int, seed: int) -> list[float]:
    draw, values = random.Random(seed), [0.0]
    for _ in range(count):
        values.append(keep * values[-1] + draw.gauss(0, 1))
    return values[1:]


def best_rise(values: list[float]) -> float:
    return max(curve.evidence for curve in rises(values)) - memory_evidence(values)


@pytest.mark.parametrize("middle", [-0.6, 0.0, 0.37, 1.3])
@pytest.mark.parametrize("width", [0.13, 0.4, 1.1])
def test_sigmoid_leaves_less_than_a_hundredth_of_the_squares(middle: float, width: float) -> None:
    values = [2 * math.tanh((2 * i / 49 - 1 - middle) / width) for i in range(50)]
    mean = math.fsum(values) / 50
    level = [value - mean for value in values]
    left = math.fsum(rest * rest for rest in sigmoid_residuals(level))
    assert left < 0.01 * math.fsum(value * value for value in level)


def test_falling_values_have_no_rising_sigmoid() -> None:
    level = [5.0 - i for i in range(11)]
    assert sigmoid_residuals(level) == level


def test_monotone_curve_of_a_textbook() -> None:
    """The example of Barlow et al.: neighbours in the wrong order share their mean."""
    assert monotone([1, 3, 2, 4, 3.5, 6]) == [1, 2.5, 2.5, 3.75, 3.75, 6]
    assert monotone([3, 2, 1]) == [2, 2, 2]


@given(series)
def test_monotone_curve_never_falls_and_keeps_the_mean(values: list[float]) -> None:
    curve = monotone(values)
    assert all(a <= b + 1e-9 for a, b in pairwise(curve))
    assert math.fsum(curve) == pytest.approx(math.fsum(values), abs=1e-6)
    assert monotone(curve) == pytest.approx(curve)


@pytest.mark.parametrize("keep", [0.8, 0.9, 1.0])
def test_noise_with_a_memory_is_explained_by_its_memory(keep: float) -> None:
    """Of noise of any memory, one series in ten at most is explained by a rise."""
    found = [best_rise(autoregressive(keep, 40, seed)) for seed in range(60)]
    assert sum(evidence > 5 for evidence in found) <= 6


def test_likelihood_of_white_noise_is_the_textbooks() -> None:
    """Without a memory it is that of independent values whose mean is not known (Harville 1974)."""
    values = [1.0, -1.0, 2.0, -2.0, 1.5, -1.5, 0.5, -0.5]
    spread = math.fsum(v * v for v in values) / 7
    assert memory_evidence(values) == pytest.approx(-7 / 2 * math.log(spread) - math.log(8) / 2)


def test_likelihood_of_a_walk_is_that_of_its_steps() -> None:
    values = [0.0, 1.0, 3.0, 4.0, 6.0, 7.0, 9.0, 10.0, 12.0, 13.0]
    steps = math.fsum((b - a) ** 2 for a, b in pairwise(values)) / 9
    assert memory_evidence(values) == pytest.approx(-9 / 2 * math.log(steps), rel=1e-6)


@pytest.mark.parametrize(("level", "slope"), [(0.2, 1), (0.9, -1)], ids=["harder data", "peak"])
def test_break_follows_a_drop_and_a_fall(level: float, slope: int) -> None:
    draw = random.Random(2)
    values = [x / 60 + draw.gauss(0, 0.03) for x in range(60)]
    values += [level + slope * x / 60 + draw.gauss(0, 0.03) for x in range(40)]
    assert best_rise(values) < 5
    assert broken_rise(values).evidence - memory_evidence(values) > 20


@given(st.lists(st.integers(-1000, 1000), min_size=8, max_size=40).filter(lambda v: min(v) < max(v)))
def test_scale_does_not_matter(numbers: list[int]) -> None:
    assert best_rise([8.0 * n for n in numbers]) == pytest.approx(best_rise([float(n) for n in numbers]))
