"""Random walks and real curves: how often each passes, and that the statistics are the published ones."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.metrics.signal import MIN_POINTS, assess
from jobspec.metrics.wander import MIN_DRIFT, drift_ratio, residuals, reversion, wanders

Make = Callable[[random.Random, int], list[float]]
# The reward of examples/quickstart.yaml as this repository's run of it logged it, 24 steps.
QUICKSTART = [0.24, 0.27, 0.27, 0.33, 0.33, 0.39, 0.42, 0.54, 0.57, 0.59, 0.68, 0.76, 0.8, 0.8, 0.83, 0.85,
              0.91, 0.9, 0.94, 0.94, 0.94, 0.97, 0.96, 0.99]  # fmt: skip


def share(make: Make, count: int, times: int) -> float:
    draw = random.Random(count)
    return sum(assess(list(enumerate(make(draw, count)))).moved for _ in range(times)) / times


def memory(keep: float) -> Make:
    """AR(1) noise; a random walk for 1."""

    def make(draw: random.Random, count: int) -> list[float]:
        value = draw.gauss(0, 1) / math.sqrt(1 - keep**2) if keep < 1 else 0.0
        values = []
        for _ in range(count):
            value = keep * value + draw.gauss(0, 1)
            values.append(value)
        return values

    return make


def saturating(noise: float, share_of_run: float = 0.25) -> Make:
    return lambda draw, n: [
        0.9 - 0.75 * math.exp(-step / (n * share_of_run)) + draw.gauss(0, noise) for step in range(n)
    ]


def line(draw: random.Random, count: int) -> list[float]:
    return [step / count + draw.gauss(0, 0.1) for step in range(count)]


@pytest.mark.parametrize(("count", "times"), [(24, 600), (60, 250), (100, 120), (300, 40)])
def test_random_walk_seldom_passes(count: int, times: int) -> None:
    assert share(memory(1.0), count, times) <= 0.05


@pytest.mark.parametrize("keep", [0.9, 0.95])
def test_noise_with_a_long_memory_seldom_passes(keep: float) -> None:
    assert share(memory(keep), 24, 600) <= 0.05
    assert share(memory(keep), 300, 40) <= 0.05


def test_recorded_quickstart_passes() -> None:
    signal = assess(list(enumerate(QUICKSTART, 1)))
    assert signal.moved
    assert signal.drift > MIN_DRIFT
    assert not assess(list(enumerate(reversed(QUICKSTART)))).moved


@pytest.mark.parametrize(("count", "least"), [(24, 0.97), (60, 0.97), (100, 0.97), (300, 0.97)])
def test_curve_that_saturates_passes(count: int, least: float) -> None:
    assert share(saturating(0.02), count, 40) >= least


@pytest.mark.parametrize(("count", "least"), [(24, 0.8), (60, 0.95), (100, 0.95)])
def test_noisier_rises_pass_mostly(count: int, least: float) -> None:
    assert share(saturating(0.05), count, 60) >= least
    assert share(line, count, 60) >= least - 0.1


@pytest.mark.parametrize("count", [60, 100])
def test_quick_rise_and_long_plateau_passes(count: int) -> None:
    assert share(saturating(0.02, 8 / count), count, 40) >= 0.95


def test_reason_names_the_walk() -> None:
    draw, found = random.Random(3), set()
    for _ in range(200):
        found.add(assess(list(enumerate(memory(1.0)(draw, 60)))).reason.split(":")[0])
    assert "may be wandering" in found


def test_drift_of_a_walk_has_unit_spread() -> None:
    """The statistic is about standard normal for a walk, as its derivation says."""
    draw = random.Random(4)
    ratios = [drift_ratio(memory(1.0)(draw, 200), 40) for _ in range(400)]
    mean = math.fsum(ratios) / len(ratios)
    spread = math.sqrt(math.fsum((r - mean) ** 2 for r in ratios) / len(ratios))
    assert abs(mean) < 0.2 and 0.9 < spread < 1.5


def test_white_noise_returns_and_a_walk_does_not() -> None:
    draw = random.Random(5)
    noise = [reversion([draw.gauss(0, 1) for _ in range(100)], 3) for _ in range(50)]
    walks = [reversion(memory(1.0)(draw, 100), 3) for _ in range(50)]
    assert max(noise) < -6
    assert sum(t > -4.5 for t in walks) >= 45


def test_exact_curves_do_not_wander() -> None:
    for values in ([float(i) for i in range(20)], [float(i**3) for i in range(20)]):
        assert not wanders(values, drift_ratio(values, 4), 4)


@given(st.lists(st.floats(-5, 5), min_size=4, max_size=4), st.integers(10, 60))
def test_cubic_leaves_no_residual(factors: list[float], count: int) -> None:
    cubic = [sum(f * (i / count) ** power for power, f in enumerate(factors)) for i in range(count)]
    assert max(map(abs, residuals(cubic, 3))) < 1e-8


@given(
    st.lists(st.integers(-1000, 1000), min_size=MIN_POINTS, max_size=40),
    st.sampled_from([0.25, 8.0]),
    st.integers(-3, 3),
)
def test_scale_and_level_do_not_matter(numbers: list[int], scale: float, level: int) -> None:
    plain = [float(n) for n in numbers]
    moved = [scale * (n + 64 * level) for n in plain]
    assert drift_ratio(moved, 3) == pytest.approx(drift_ratio(plain, 3), rel=1e-6, abs=1e-9)


@given(st.lists(st.floats(-1e6, 1e6, allow_nan=False), min_size=MIN_POINTS, max_size=40))
def test_any_values_have_an_answer(values: list[float]) -> None:
    assert not math.isnan(drift_ratio(values, 3))
    assert not math.isnan(reversion(values, 3))
    assert isinstance(wanders(values, drift_ratio(values, 3), 3), bool)
