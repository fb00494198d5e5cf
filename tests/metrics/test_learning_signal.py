"""The learning test: what passes, what must not, and how often flat noise does."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.metrics.learning_signal import ALPHA, MIN_POINTS, assess, theil_sen, thin, trend_p_value

Series = list[tuple[int, float]]
values = st.floats(-1e6, 1e6, allow_nan=False)
late = partial(pytest.param, marks=pytest.mark.nightly)


def series(function: Callable[[int], float], count: int = 30) -> Series:
    return [(step, function(step)) for step in range(1, count + 1)]


def saturating(draw: random.Random) -> Callable[[int], float]:
    return lambda step: 0.9 - 0.75 * math.exp(-step / 8) + draw.gauss(0, 0.02)


def passes(make: Callable[[], Series], times: int) -> float:
    return sum(assess(make()).moved for _ in range(times)) / times


# -- what passes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [10, 24, 60, 300])
def test_saturating_curve_passes(count: int) -> None:
    signal = assess(series(saturating(random.Random(0)), count))
    assert signal.moved
    assert signal.p_value < ALPHA
    assert signal.end > signal.start


def test_slow_rise_in_noise_passes() -> None:
    draw = random.Random(1)
    signal = assess(series(lambda step: 0.1 + 0.003 * step + draw.gauss(0, 0.03), 100))
    assert signal.moved
    assert signal.slope == pytest.approx(0.003, rel=0.3)
    assert signal.noise == pytest.approx(0.03, rel=0.3)


def test_falling_loss_passes_when_asked_for() -> None:
    draw = random.Random(2)
    falling = series(lambda step: 2 - 0.05 * step + draw.gauss(0, 0.1))
    assert assess(falling, "down").moved
    assert not assess(falling, "up").moved


def test_exact_line_passes_without_noise() -> None:
    assert assess(series(float)).moved


# -- what must not pass ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda step: 0.5, "did not change"),
        (lambda step: 1.0 - step / 100, "wrong way"),
        (lambda step: math.sin(step), "no trend|wrong way"),
        (lambda step: 0.9 if step == 30 else 0.1, "no trend|standard errors"),
        (lambda step: -abs(step - 15.5), "did not change|no trend|wrong way"),
    ],
    ids=["constant", "falling", "wave", "one outlier", "up and down"],
)
def test_no_signal(function: Callable[[int], float], reason: str) -> None:
    signal = assess(series(function))
    assert not signal.moved
    assert any(part in signal.reason for part in reason.split("|"))


def test_change_below_the_asked_one_does_not_pass() -> None:
    rising = series(lambda step: step / 1000)
    assert assess(rising).moved
    assert "0.5 is asked for" in assess(rising, min_change=0.5).reason


def test_few_points_do_not_pass() -> None:
    signal = assess(series(float, MIN_POINTS - 1))
    assert not signal.moved
    assert "too few" in signal.reason


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_value_that_is_not_finite_is_named(bad: float) -> None:
    signal = assess(series(lambda step: bad if step == 7 else step))
    assert not signal.moved
    assert "step 7" in signal.reason


# -- error rates, by simulation ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "times"), [(10, 1500), (200, 30), *(late(*case) for case in ((8, 2000), (24, 700), (60, 150)))]
)
def test_flat_noise_passes_in_less_than_one_case_in_a_hundred(count: int, times: int) -> None:
    draw = random.Random(count)
    assert passes(lambda: series(lambda step: draw.gauss(0.5, 0.1), count), times) < 0.01


def test_noise_of_other_shapes_passes_as_seldom() -> None:
    draw = random.Random(5)
    assert passes(lambda: series(lambda step: float(draw.random() < 0.1)), 300) < 0.01
    assert passes(lambda: series(lambda step: draw.paretovariate(1.5)), 300) < 0.01


def correlated(draw: random.Random, share: float, count: int) -> Series:
    points, value = [], draw.gauss(0, 1) / math.sqrt(1 - share**2)
    for step in range(count):
        value = share * value + draw.gauss(0, 1)
        points.append((step, value))
    return points


def test_noise_that_remembers_the_step_before_passes_seldom() -> None:
    draw = random.Random(6)
    assert passes(lambda: correlated(draw, 0.4, 30), 300) < 0.01
    assert passes(lambda: correlated(draw, 0.6, 30), 300) < 0.02


def test_real_rise_is_seldom_missed() -> None:
    draw = random.Random(7)
    assert passes(lambda: series(saturating(draw), 24), 120) > 0.99
    assert passes(lambda: series(lambda s: 0.1 + 0.003 * s + draw.gauss(0, 0.04), 100), 35) > 0.97


# -- properties --------------------------------------------------------------------------------------


@given(st.lists(values, min_size=MIN_POINTS, max_size=40))
def test_never_passes_in_both_directions(numbers: list[float]) -> None:
    points = list(enumerate(numbers))
    assert not (assess(points, "up").moved and assess(points, "down").moved)


@given(st.lists(values, min_size=MIN_POINTS, max_size=40), st.randoms(use_true_random=False))
def test_order_of_the_points_does_not_matter(numbers: list[float], draw: random.Random) -> None:
    points = list(enumerate(numbers))
    mixed = draw.sample(points, len(points))
    assert assess(mixed) == assess(points)


@given(
    st.lists(st.integers(-1000, 1000), min_size=MIN_POINTS, max_size=40), st.sampled_from([0.5, 2.0, 64.0])
)
def test_scale_does_not_matter(numbers: list[int], scale: float) -> None:
    plain = assess([(i, float(n)) for i, n in enumerate(numbers)])
    scaled = assess([(i, n * scale) for i, n in enumerate(numbers)])
    assert scaled.moved == plain.moved
    assert scaled.p_value == pytest.approx(plain.p_value)


@given(st.lists(values, min_size=2, max_size=60))
def test_p_value_is_a_probability(numbers: list[float]) -> None:
    assert 0 <= trend_p_value(numbers) <= 1


@given(st.lists(st.integers(0, 50), min_size=2, max_size=30, unique=True))
def test_p_values_of_both_directions_agree(numbers: list[int]) -> None:
    up, down = trend_p_value(numbers), trend_p_value([-n for n in numbers])
    assert up == pytest.approx(1 - down)


def test_slope_shrugs_off_an_outlier() -> None:
    points = series(lambda step: 2.0 * step)
    points[10] = (11, 1e9)
    assert theil_sen(points) == pytest.approx(2.0)


def test_mann_kendall_agrees_with_the_textbook() -> None:
    """S of 10 rising values is 45, its variance 125: z = 44/sqrt(125), one-sided p by the normal law."""
    assert trend_p_value(list(range(10))) == pytest.approx(4.15e-5, rel=0.01)


@given(st.integers(1, 3000), st.integers(10, 400))
def test_thinning_keeps_the_end_and_the_limit(count: int, limit: int) -> None:
    points = thin([(step, float(step)) for step in range(count)], limit)
    assert len(points) <= limit
    assert points[-1][0] == count - 1
