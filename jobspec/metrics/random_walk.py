"""Tells whether a random walk explains the change of a series. Pure.

A trend test assumes that the noise around a trend is short-lived. In a random walk each step only adds to the
last value, and such a walk passes a trend test far too often. One of two observations must rule the walk out.

First: the change is larger than a walk explains. This test needs no curve. But the steps of a quick rise make
the steps of the walk look large, so the test misses a rise within a small part of the run.

Second: a curve explains the series better than a walk does, which means that the steps are large against the
residuals of the curve. Around a learnt curve the values only scatter. The squares of the steps are then twice
the squares of the residuals, and more where the metric rises. A walk leaves any curve in many small steps:
its ratio falls with the number of points and grows with the parameters of the curve. Noise with a long memory
has small steps too. A calm start, a quick rise and a calm end differ from a walk by a wide margin, since the
curve absorbs the large steps. A slow walk under much noise also has large steps. So the change must also
exceed noise with a memory. That noise is measured around a simple curve, because a spline would follow the
walk.

A smooth curve follows a staircase only with knots along the whole series, and each knot costs parameters. So
where no smooth curve explains the series, levels with jumps may. Jumps also go up and down by chance, and two
upward jumps prove little: only many jumps in one direction count. The noise is never measured around a
staircase, because the values themselves choose its jumps.
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
# The bound of `step_ratio` is this, times the curve's parameters, divided by the number of points. The ratio
# of a walk is in proportion to both: with 12 to 300 points and any of the curves, one walk in 40 reaches 14
# to 16.
WALK_RATIO = 17.0
MIN_RATIO = 0.5  # for long series, where noise with a long memory is the greater danger: AR(1) of 0.75
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

    The walk has the increments of the series, less a fitted line: a saturating curve has shrinking ones.
    """
    change = (math.fsum(values[-window:]) - math.fsum(values[:window])) / window
    rest = residuals([later - earlier for earlier, later in pairwise(values)], 1)
    variance = _long_run_variance(rest, 1 + len(values) // LAG_SHARE, freedom=len(rest) - 2)
    # An increment inside a window counts only for the values after it.
    weight = len(values) - 1 - 2 * (window - 1) + 2 * math.fsum((i / window) ** 2 for i in range(1, window))
    return _ratio(change, math.sqrt(max(0.0, variance) * weight), values)


def steady_ratio(values: Sequence[float], curve: Curve, window: int) -> float:
    """The same change in standard errors of noise that returns to the curve, slowly or fast."""
    change = (math.fsum(values[-window:]) - math.fsum(values[:window])) / window
    freedom = len(values) - curve.parameters
    variance = _long_run_variance(curve.rest, 1 + len(values) // LAG_SHARE, freedom)
    return _ratio(change, math.sqrt(max(0.0, variance) * 2 / window), values)


def _ratio(change: float, error: float, values: Sequence[float]) -> float:
    if error <= ROUNDING * max(map(abs, values)):
        return math.copysign(math.inf, change) if change else 0.0
    return change / error


def _long_run_variance(rest: Sequence[float], lags: int, freedom: int) -> float:
    """Variance of the sum of the values, divided by their number, with Bartlett's weights."""
    total = math.fsum(x * x for x in rest)
    for lag in range(1, lags + 1):
        products = math.fsum(a * b for a, b in zip(rest, rest[lag:], strict=False))
        total += 2 * (1 - lag / (lags + 1)) * products
    return total / freedom
