"""Random walks and real curves: how often each passes, and that the statistics are the published ones."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.metrics.curve_fit import curves
from jobspec.metrics.learning_signal import MIN_POINTS, assess
from jobspec.metrics.random_walk import MIN_DRIFT, drift_ratio, steady_ratio, step_ratio, wanders
from tests.kits.script_module import load_script

Make = Callable[[random.Random, int], list[float]]
SIMULATION = load_script(Path(__file__).parents[2] / "benchmarks/learning_signal.py")
# The reward of examples/quickstart.yaml as this repository's run of it logged it, 24 steps.
QUICKSTART = [0.24, 0.27, 0.27, 0.33, 0.33, 0.39, 0.42, 0.54, 0.57, 0.59, 0.68, 0.76, 0.8, 0.8, 0.83, 0.85,
              0.91, 0.9, 0.94, 0.94, 0.94, 0.97, 0.96, 0.99]  # fmt: skip

# reward/avg_raw_reward of two GRPO runs on a GPU, 256 answers a step: late take-off, quick rise, plateau.
GRPO_LONG = [0.078, 0.055, 0.074, 0.062, 0.047, 0.109, 0.094, 0.098, 0.113, 0.148, 0.113, 0.129, 0.23, 0.172,
             0.355, 0.516, 0.613, 0.531, 0.723, 0.758, 0.789, 0.859, 0.867, 0.922, 0.922, 0.945, 0.871, 0.852,
             0.863]  # fmt: skip
GRPO_SHORT = [0.066, 0.086, 0.109, 0.055, 0.051, 0.137, 0.09, 0.117, 0.113, 0.137, 0.098, 0.121, 0.148, 0.117,
              0.266, 0.328, 0.488, 0.527, 0.613, 0.691, 0.785, 0.824, 0.812, 0.918, 0.871, 0.898]  # fmt: skip

late = partial(pytest.param, marks=pytest.mark.nightly)


def share(make: Make, count: int, times: int) -> float:
    draw = random.Random(count)
    return sum(assess(list(enumerate(make(draw, count)))).moved for _ in range(times)) / times


def memory(keep: float) -> Make:
    """AR(1) noise; a random walk for 1. The same as in the table of docs/verdict.md."""
    return partial(SIMULATION.memory, keep)


def saturating(noise: float, share_of_run: float = 0.25) -> Make:
    return lambda draw, n: [
        0.9 - 0.75 * math.exp(-step / (n * share_of_run)) + draw.gauss(0, noise) for step in range(n)
    ]


def sigmoid(begin: float, noise: float) -> Make:
    """From 0.05 to 0.9; the rise begins at `begin` and takes 30 % of the run."""
    return lambda draw, n: [
        0.05 + 0.85 / (1 + math.exp((begin + 0.15 - i / (n - 1)) / 0.05)) + draw.gauss(0, noise)
        for i in range(n)
    ]


def line(draw: random.Random, count: int) -> list[float]:
    return [step / count + draw.gauss(0, 0.1) for step in range(count)]


@pytest.mark.parametrize(
    ("count", "times"),
    [(24, 400), (300, 15), *(late(*case) for case in ((12, 800), (40, 150), (60, 80), (100, 40)))],
)
def test_random_walk_seldom_passes(count: int, times: int) -> None:
    assert share(memory(1.0), count, times) <= (0.06 if count == 12 else 0.05)


@pytest.mark.parametrize("keep", [0.9, late(0.95)])
def test_noise_with_a_long_memory_seldom_passes(keep: float) -> None:
    assert share(memory(keep), 24, 300) <= 0.05
    assert share(memory(keep), 300, 15) <= 0.05


def test_recorded_quickstart_passes() -> None:
    signal = assess(list(enumerate(QUICKSTART, 1)))
    assert signal.moved
    assert signal.drift > MIN_DRIFT
    assert not assess(list(enumerate(reversed(QUICKSTART)))).moved


@pytest.mark.parametrize("values", [GRPO_LONG, GRPO_SHORT], ids=["29 steps", "26 steps"])
def test_recorded_late_rise_passes(values: list[float]) -> None:
    signal = assess(list(enumerate(values, 1)))
    assert signal.moved
    assert signal.p_value < 1e-6 and signal.effect > 20
    assert signal.noise < 0.05  # of which 0.03 is the sampling of 256 answers
    assert assess(list(enumerate([-v for v in values])), "down").moved
    assert not assess(list(enumerate(values)), "down").moved
    assert not assess(list(enumerate(reversed(values)))).moved


@pytest.mark.parametrize("begin", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("noise", [0.02, 0.05])
@pytest.mark.parametrize(("count", "times"), [(24, 40), (40, 12), (60, 6), (100, 3)])
def test_late_rise_passes(begin: float, noise: float, count: int, times: int) -> None:
    assert share(sigmoid(begin, noise), count, times) >= (0.85 if count == 24 else 0.9)


def test_late_rise_without_noise_passes() -> None:
    for begin in (0.3, 0.5, 0.7):
        assert share(sigmoid(begin, 0.0), 30, 1) == 1


def test_rise_in_two_stages_and_lost_plateau_pass() -> None:
    """Clear learning that no single sigmoid follows."""

    def stages(draw: random.Random, n: int) -> list[float]:
        low, high = sigmoid(0.1, 0.01)(draw, n), sigmoid(0.6, 0.01)(draw, n)
        return [0.5 * (a + b) for a, b in zip(low, high, strict=True)]

    def lost(draw: random.Random, n: int) -> list[float]:
        return [v - max(0, i / n - 0.75) for i, v in enumerate(sigmoid(0.3, 0.02)(draw, n))]

    assert share(stages, 60, 10) >= 0.95
    assert share(lost, 60, 10) >= 0.95


@pytest.mark.parametrize("noise", [0.02, 0.05])
@pytest.mark.parametrize(("count", "times"), [(120, 4), (200, 3), (300, 2)])
def test_staircase_of_four_jumps_passes(noise: float, count: int, times: int) -> None:
    """Splines pay for knots along the whole run: of 300 points with noise 0.02, 62 % passed."""
    assert share(partial(SIMULATION.staircase, 4, noise), count, times) == 1


def test_two_jumps_may_be_chance() -> None:
    assert share(partial(SIMULATION.staircase, 2, 0.02), 120, 3) == 0


@pytest.mark.parametrize(("count", "least"), [(24, 0.97), (60, 0.97), late(100, 0.97), late(300, 0.97)])
def test_curve_that_saturates_passes(count: int, least: float) -> None:
    assert share(saturating(0.02), count, 8 if count >= 100 else 25) >= least


@pytest.mark.parametrize(("count", "least"), [(24, 0.8), (60, 0.95), late(100, 0.95)])
def test_noisier_rises_pass_mostly(count: int, least: float) -> None:
    assert share(saturating(0.05), count, 25) >= least
    assert share(line, count, 25) >= least - 0.1


@pytest.mark.parametrize("count", [60, late(100)])
def test_quick_rise_and_long_plateau_passes(count: int) -> None:
    assert share(saturating(0.02, 8 / count), count, 40) >= 0.95


def test_reason_names_the_walk() -> None:
    draw = random.Random(3)
    reasons = (assess(list(enumerate(memory(1.0)(draw, 60)))).reason for _ in range(200))
    assert any(reason.startswith("may be wandering") for reason in reasons)


def test_drift_of_a_walk_has_unit_spread() -> None:
    """The statistic is about standard normal for a walk, as its derivation says."""
    draw = random.Random(4)
    ratios = [drift_ratio(memory(1.0)(draw, 200), 40) for _ in range(400)]
    mean = math.fsum(ratios) / len(ratios)
    spread = math.sqrt(math.fsum((r - mean) ** 2 for r in ratios) / len(ratios))
    assert abs(mean) < 0.2 and 0.9 < spread < 1.5


def test_steps_of_noise_are_large_and_those_of_a_walk_small() -> None:
    draw = random.Random(5)

    def ratios(make: Make) -> list[float]:
        found = []
        for _ in range(40):
            values = make(draw, 100)
            found.append(step_ratio(values, min(curves(values)[:4], key=lambda c: c.squares)))
        return found

    assert min(ratios(memory(0.0))) > 1.4
    assert max(ratios(memory(1.0))) < 1.0


def test_ratio_of_a_walk_is_in_proportion_to_parameters_over_points() -> None:
    """The law that lets one limit do for all lengths and curves: the medians are much the same."""
    draw, medians = random.Random(6), []
    for count in (24, 96):
        for kind in (0, 2, 4):  # line, cubic, coarsest spline
            found = []
            for _ in range(40):
                values = memory(1.0)(draw, count)
                curve = curves(values)[kind]
                found.append(step_ratio(values, curve) * count / curve.parameters)
            medians.append(sorted(found)[20])
    assert max(medians) < 1.5 * min(medians)


def test_steady_ratio_of_a_slow_walk_under_noise_is_small() -> None:
    draw = random.Random(7)
    for _ in range(20):
        walk, noise = memory(1.0)(draw, 100), memory(0.0)(draw, 100)
        values = [0.1 * a + b for a, b in zip(walk, noise, strict=True)]
        assert abs(steady_ratio(values, curves(values)[3], 20)) < 15


def test_exact_curves_do_not_wander() -> None:
    for values in ([float(i) for i in range(20)], [float(i**3) for i in range(20)]):
        assert not wanders(values, curves(values), drift_ratio(values, 4), 4)


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
    family = curves(values)
    assert not any(math.isnan(step_ratio(values, curve)) for curve in family)
    assert isinstance(wanders(values, family, drift_ratio(values, 3), 3), bool)
