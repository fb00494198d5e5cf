"""The learning test: what passes, what must not, and how often flat noise does."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.metrics.learning_signal import (
    ALPHA,
    MIN_EVIDENCE,
    MIN_POINTS,
    RULED_OUT,
    answers_per_value,
    assess,
    theil_sen,
    thin,
    trend_p_value,
)
from tests.kits.script_module import load_script

Series = list[tuple[int, float]]
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
        (lambda step: 1.0 - step / 100, "fell from its start"),
        (lambda step: math.sin(step), "no trend|fell from its start"),
        (lambda step: 0.9 if step == 30 else 0.1, "no trend|standard errors"),
        (lambda step: -abs(step - 15.5), "same mean at both ends|no trend|fell from its start"),
    ],
    ids=["constant", "falling", "wave", "one outlier", "up and down"],
)
def test_no_signal(function: Callable[[int], float], reason: str) -> None:
    signal = assess(series(function))
    assert not signal.moved
    assert any(part in signal.reason for part in reason.split("|"))


def test_a_loss_that_rises_is_said_to_rise() -> None:
    assert assess(series(lambda step: step / 100), "down").reason == "rose from its start to its end"


def test_values_that_fill_no_block_are_said_to_be_left_out() -> None:
    """406 values are averaged by fours, which leaves two: the mean is that of the third to the 82nd."""
    values = [1 + step / 1000 + (step % 7) / 500 for step in range(1, 407)]
    mean = math.fsum(values[2:82]) / 80
    shown = assess(list(enumerate(values, 1))).figures()
    assert f"{mean:.4g} -> " in shown
    assert "means of 80 values at each end of 406 without the first 2" in shown
    assert "without the first 2), in means of 4 values: median slope " in shown
    assert "at each end of 60)" in assess(list(enumerate(values[:60], 1))).figures()


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


@pytest.mark.parametrize("huge", [1e101, -1.7e308])
def test_value_whose_square_no_float_holds_is_named(huge: float) -> None:
    signal = assess(series(lambda step: huge if step >= 7 else step))
    assert (signal.moved, signal.reason) == (
        False, f"is {huge:.3g}, too large to tell a trend, at step 7"
    )  # fmt: skip


# -- recorded runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [QUICKSTART, GRPO_LONG, GRPO_SHORT], ids=["quickstart", "29", "26"])
def test_recorded_run_passes_and_no_walk_is_possible(values: list[float]) -> None:
    signal = assess(list(enumerate(values, 1)))
    assert signal.moved and not signal.possible_walk and not signal.limitation()
    assert signal.p_value < 1e-6 and signal.effect > 20
    assert assess(list(enumerate([-v for v in values])), "down").moved
    assert not assess(list(enumerate(values)), "down").moved
    assert not assess(list(enumerate(reversed(values)))).moved


# -- error rates, by simulation ----------------------------------------------------------------------


def rates(name: str, count: int, times: int) -> tuple[float, float]:
    """Shares of the series that pass, and that pass with a random walk ruled out."""
    moved, clean = SIMULATION.passes(name, count, times)
    return moved / times, clean / times


@pytest.mark.parametrize(("count", "times"), [(12, 400), (24, 300), (60, 60), late(200, 60)])
def test_flat_noise_passes_in_less_than_one_case_in_a_hundred(count: int, times: int) -> None:
    assert rates("white noise", count, times)[0] <= 0.01


def test_noise_of_other_shapes_passes_as_seldom() -> None:
    draw = random.Random(5)
    assert passes(lambda: series(lambda step: float(draw.random() < 0.1)), 150) < 0.01
    assert passes(lambda: series(lambda step: draw.paretovariate(1.5)), 150) < 0.01


@pytest.mark.parametrize("name", ["AR(1), 0.6", "AR(1), 0.9", "AR(1), 0.95"])
@pytest.mark.parametrize(("count", "times"), [(24, 120), (100, 15), late(24, 1000), late(60, 300)])
def test_noise_with_a_memory_passes_seldom_and_with_its_limitation(name: str, count: int, times: int) -> None:
    moved, clean = rates(name, count, times)
    assert clean <= 0.03 and moved <= 0.12


@pytest.mark.parametrize(("count", "times"), [(24, 150), (100, 15), late(40, 400)])
def test_random_walk_is_seldom_ruled_out_wrongly(count: int, times: int) -> None:
    assert rates("random walk", count, times)[1] <= 0.06


@pytest.mark.parametrize("name", SIMULATION.RISES)
@pytest.mark.parametrize(("count", "times"), [(24, 30), (100, 3), late(24, 300), late(300, 20)])
def test_rise_is_seldom_missed(name: str, count: int, times: int) -> None:
    assert rates(name, count, times)[0] >= (0.86 if times < 100 else 0.94)


# -- what the values leave possible ------------------------------------------------------------------


def test_limitation_names_the_share_of_walks() -> None:
    """A straight walk: its steps are equal, so a walk with such steps seldom gets as far."""
    draw = random.Random(3)
    signals = [assess(series(lambda s: s / 12 + draw.gauss(0, 0.3), 12)) for _ in range(20)]
    possible = [signal for signal in signals if signal.moved and signal.possible_walk]
    assert possible and all(MIN_EVIDENCE <= signal.evidence < RULED_OUT for signal in possible)
    assert f"{100 * possible[0].walks:.2g} % of runs" in possible[0].limitation()


def test_share_of_walks_is_that_of_a_simulation() -> None:
    draw = random.Random(4)
    shares = [assess(list(enumerate(SIMULATION.memory(1.0, draw, 60)))).walks for _ in range(200)]
    assert sum(share < 0.1 for share in shares) / 200 == pytest.approx(0.1, abs=0.06)


def test_rise_that_noise_with_a_memory_explains_is_unclear() -> None:
    draw = random.Random(1)
    signals = [assess(list(enumerate(SIMULATION.memory(1.0, draw, 60)))) for _ in range(30)]
    unclear = [signal for signal in signals if signal.unclear]
    assert unclear and all("memory" in one.reason and one.evidence < MIN_EVIDENCE for one in unclear)


def test_early_rise_of_few_values_is_unclear() -> None:
    early = [0.62, 0.674, 0.695, 0.747, 0.705, 0.733, 0.729, 0.718, 0.738, 0.706]
    signal = assess(list(enumerate(early)))
    assert signal.unclear and not signal.moved and signal.reason.startswith("rose by ")
    flat = assess(list(enumerate([0.7, 0.71, 0.69, 0.72, 0.7, 0.71, 0.72, 0.7, 0.71, 0.72])))
    assert not flat.unclear


@pytest.mark.parametrize(("answers", "step"), [(128, 128), (1024, 512), (48, 48)])
def test_number_of_answers_shows_in_their_shares(answers: int, step: int) -> None:
    assert answers_per_value([i / step % 1 for i in range(1, 40, 3)]) in (answers, step)


@pytest.mark.parametrize(
    "values", [[0.11, 0.27, 0.5], [0.1234, 0.4321], [2**-0.5, 3**-0.5, 5**-0.5], [1.5, 2.0], [-0.5]]
)
def test_rounded_and_other_values_tell_no_number_of_answers(values: list[float]) -> None:
    assert answers_per_value(values) == 0


def test_steps_that_sampling_explains_leave_no_walk() -> None:
    """The same rise, once as shares of 128 answers, once with as much noise of unknown origin."""
    name = "128 answers, right with a chance from 0.23 to 0.59"
    assert rates(name, 12, 40)[1] > 0.85
    draw = random.Random(2)
    unknown = [assess([(i, 0.23 + 0.03 * i + draw.gauss(0, 0.042)) for i in range(12)]) for _ in range(40)]
    assert sum(signal.moved and not signal.possible_walk for signal in unknown) < 15


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


def test_values_that_are_equal_from_the_second_on_are_said_to_be_so() -> None:
    signal = assess([(8, 0.4), *((step, 1.0) for step in range(16, 200, 8))])
    assert signal.reason == "was 0.4 at step 8 and is exactly 1 from step 16 on (23 of 24 values)"
    assert not signal.moved and signal.figures() == "24 points were read"
