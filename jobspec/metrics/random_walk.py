"""Could a series have got there without a cause? Questions to a random walk. Pure.

A trend test takes the noise around a trend for short-lived. A metric that wanders, where each step only adds
to the last, then passes far too often. One of two things must speak against that.

Either the change is larger than such a walk explains. That needs no curve, but the steps of a quick rise make
the walk's look large, so it misses rises that happen in a small part of the run.

Or a curve explains the series better than a walk does: the steps are large against what the curve leaves.
Around a learnt curve the values only scatter, so the squares of the steps are twice those of the residuals,
and more where the metric rises. A walk leaves any curve in many small steps: its ratio falls with the number
of points and grows with the parameters of the curve. Noise that forgets slowly has small steps too. A calm
start, a quick rise and a calm end thus differ from a walk by a wide margin: the curve takes the large steps
away. A slow walk under much noise has large steps as well. So the change must also stand out of noise with a
memory, and that around a simple curve: a spline would follow the walk.

Smooth curves follow a staircase only with knots along all of it, and pay for each. So where they do not
explain the series, levels with jumps may. But jumps also go up and down by chance, and two that go up say
little: only many that all go one way count. The noise is never measured around a staircase, whose jumps lie
where the values ask for them.
Source: J. D. Sargan and A. Bhargava, Econometrica 51 (1983) 153, for the ratio of steps to residuals as a
test for a random walk; Harvey, Leybourne and Taylor, J. Econometrics 141 (2007) 1302, for a trend under both
kinds of noise and its statistic from increments; Newey and West, Econometrica 55 (1987) 703.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from jobspec.metrics.curve_fit import ROUNDING, SIMPLE, Curve, best, residuals, staircase

LAG_SHARE = 10  # of the increments' own dependence: a tenth of the points, and one
# Chosen by simulation for all together: docs/verdict.md has the table of benchmarks/learning_signal.py.
MIN_DRIFT = 3.0
# What is asked of `step_ratio`, times the curve's parameters, divided by the number of points. A walk's is in
# proportion to both: with 12 to 300 points and any of the curves, one walk in 40 reaches 14 to 16.
WALK_RATIO = 17.0
MIN_RATIO = 0.5  # for long series, where noise that forgets slowly is the nearer danger: AR(1) of 0.75
MIN_STEADY = 6.0


def wanders(values: Sequence[float], curves: Sequence[Curve], drift: float, window: int) -> bool:
    """Whether a random walk explains the change; `drift` is `drift_ratio` in the asked direction."""
    if drift >= MIN_DRIFT or _explained(values, curves, window):
        return False
    stairs = staircase(values)
    return stairs is None or not _explained(values, [*curves, stairs], window)


def _explained(values: Sequence[float], curves: Sequence[Curve], window: int) -> bool:
    """Whether the best of the curves explains the values, and the change, better than a walk does."""
    curve = best(curves)
    needed = max(MIN_RATIO, WALK_RATIO * curve.parameters / len(values))
    simple = best(c for c in curves if c.parameters <= SIMPLE)
    return step_ratio(values, curve) >= needed and abs(steady_ratio(values, simple, window)) >= MIN_STEADY


def step_ratio(values: Sequence[float], curve: Curve) -> float:
    """Sum of the squared steps over the sum of the squares that the curve leaves."""
    steps = math.fsum((later - earlier) ** 2 for earlier, later in pairwise(values))
    return steps / curve.squares if curve.squares else math.inf


def drift_ratio(values: Sequence[float], window: int) -> float:
    """Mean of the last minus mean of the first `window` values, in a random walk's standard errors.

    The walk has the series' own increments, freed of a line: a curve that saturates has ever smaller ones.
    """
    change = (math.fsum(values[-window:]) - math.fsum(values[:window])) / window
    rest = residuals([later - earlier for earlier, later in pairwise(values)], 1)
    variance = _long_run_variance(rest, 1 + len(values) // LAG_SHARE, freedom=len(rest) - 2)
    # An increment inside a window counts only for the values after it.
    weight = len(values) - 1 - 2 * (window - 1) + 2 * math.fsum((i / window) ** 2 for i in range(1, window))
    return _ratio(change, math.sqrt(max(0.0, variance) * weight), values)


def steady_ratio(values: Sequence[float], curve: Curve, window: int) -> float:
    """The same change in standard errors of noise that returns to the curve, however long that takes."""
    change = (math.fsum(values[-window:]) - math.fsum(values[:window])) / window
    freedom = len(values) - curve.parameters
    variance = _long_run_variance(curve.rest, 1 + len(values) // LAG_SHARE, freedom)
    return _ratio(change, math.sqrt(max(0.0, variance) * 2 / window), values)


def _ratio(change: float, error: float, values: Sequence[float]) -> float:
    if error <= ROUNDING * max(map(abs, values)):
        return math.copysign(math.inf, change) if change else 0.0
    return change / error


def _long_run_variance(rest: Sequence[float], lags: int, freedom: int) -> float:
    """Variance of a sum of the values for each of them, with Bartlett's weights."""
    total = math.fsum(x * x for x in rest)
    for lag in range(1, lags + 1):
        products = math.fsum(a * b for a, b in zip(rest, rest[lag:], strict=False))
        total += 2 * (1 - lag / (lags + 1)) * products
    return total / freedom
