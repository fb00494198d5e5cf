"""Tells whether a metric rises, or falls, beyond its own noise. Pure statistics over (step, value) pairs.

The metric moved if the answer to three questions is yes:

1. Is there a trend? A one-sided Mann-Kendall test decides. It uses ranks only, so neither an outlier nor a
   scale fakes a trend. Its variance is corrected for ties and for noise that depends on its predecessor.
2. Is the change large against the noise? The change is the mean of the last fifth minus the mean of the first
   fifth. The noise is the spread of the values around a curve (`jobspec.metrics.curve_fit`).
3. Is the change more than a random walk explains? See `jobspec.metrics.random_walk`.

A pass says that the metric moved and that noise does not explain the change. It never says "converged".
docs/verdict.md says how often several kinds of noise pass and how often a real rise is missed.
tests/metrics/test_learning_signal.py measures how often flat noise passes.
Source: H. B. Mann, Econometrica 13 (1945), for the test. K. H. Hamed and A. R. Rao, J. Hydrology 204 (1998),
for the correction of the variance, and for correcting it only where the dependence is significant. In a short
series chance alone looks like dependence, and a correction would hide a late rise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from jobspec.metrics.curve_fit import Curve, best, curves
from jobspec.metrics.random_walk import drift_ratio, wanders

Direction = Literal["up", "down"]

MIN_POINTS = 8  # with fewer, no rank test can reach ALPHA with a margin
ALPHA = 0.005  # one-sided; flat noise passes less often than this, since the second question must pass too
MIN_EFFECT = 4.0  # change between the windows, in standard errors of that change
WINDOW_SHARE = 5  # first and last window are a fifth of the points each
MIN_WINDOW = 3
MAX_CORRELATION = 0.9
SIGNIFICANT = 1.645  # standard errors of a correlation: one-sided 5 %
MAX_POINTS = 400  # longer series are averaged in blocks: the tests look at all pairs of points


@dataclass(frozen=True)
class Signal:
    """The figures of a series, and whether it moved.

    `start`, `end`, `change`, `slope` and `noise` do not depend on `direction`.
    `start` and `end` are the means of the first and the last `window` points; `change` is their difference.
    `slope` is the median slope per step (Theil-Sen). `noise` is the standard deviation around a smooth curve.
    `effect` is the change in `direction` in standard errors. `p_value` is one-sided. `drift` is the change in
    `direction` in standard errors of a random walk with the same steps.
    """

    moved: bool
    reason: str
    count: int
    direction: Direction = "up"
    start: float = math.nan
    end: float = math.nan
    change: float = math.nan
    slope: float = math.nan
    noise: float = math.nan
    effect: float = math.nan
    p_value: float = math.nan
    window: int = 0
    drift: float = math.nan

    def figures(self) -> str:
        """The figures on one line, for a report."""
        if not self.window:
            return f"{self.count} points"
        return (
            f"{self.start:.4g} -> {self.end:.4g} (means over the ends of {self.count} points), "
            f"slope {self.slope:+.3g} a step, noise {self.noise:.2g}, "
            f"change {self.effect:.1f} standard errors ({self.drift:.1f} of a random walk's), "
            f"p = {self.p_value:.2g}"
        )


def assess(
    points: Iterable[tuple[int, float]], direction: Direction = "up", min_change: float = 0.0
) -> Signal:
    """Whether `points` (train step, value) move in `direction` beyond their noise.

    The last value of a step counts. `min_change` is in the metric's own unit.
    """
    series = sorted(dict(points).items())
    bad = next((step for step, value in series if not math.isfinite(value)), None)
    if bad is not None:
        return Signal(False, f"the value of step {bad} is not a finite number", len(series), direction)
    if len(series) < MIN_POINTS:
        reason = f"{len(series)} points are too few to tell a trend from noise; {MIN_POINTS} are needed"
        return Signal(False, reason, len(series), direction)
    return _measure(thin(series, MAX_POINTS), direction, min_change, len(series))


def thin(series: Sequence[tuple[float, float]], limit: int) -> Sequence[tuple[float, float]]:
    """At most `limit` points: means of blocks of equal size, each at the last step of its block.

    Points that fill no block are dropped from the front, where they matter least.
    """
    size = -(-len(series) // limit)
    if size == 1:
        return series
    rest = series[len(series) % size :]
    blocks = [rest[i : i + size] for i in range(0, len(rest), size)]
    return [(block[-1][0], math.fsum(value for _, value in block) / size) for block in blocks]


def _measure(
    series: Sequence[tuple[float, float]], direction: Direction, min_change: float, count: int
) -> Signal:
    values = [value for _, value in series]
    sign = 1.0 if direction == "up" else -1.0
    window = max(MIN_WINDOW, len(values) // WINDOW_SHARE)
    start, end = math.fsum(values[:window]) / window, math.fsum(values[-window:]) / window
    change = end - start
    family = curves(values)
    noise, correlation = _noise(best(family))
    error = noise * math.sqrt(2 * _inflation(correlation) / window)
    certain = correlation if correlation * math.sqrt(len(values)) > SIGNIFICANT else 0.0
    p_value = trend_p_value([sign * value for value in values], _inflation(certain))
    effect = _ratio(sign * change, error)
    drift = sign * drift_ratio(values, window)
    moved, reason = _decide(sign * change, effect, p_value, min_change, direction)
    if moved and wanders(values, family, drift, window):
        moved, reason = False, "may be wandering: a random walk with the same steps explains the change"
    return Signal(
        moved, reason, count, direction, start, end, change, theil_sen(series), noise, effect, p_value,
        window, drift,
    )  # fmt: skip


def _decide(
    change: float, effect: float, p_value: float, min_change: float, direction: Direction
) -> tuple[bool, str]:
    verb = "rose" if direction == "up" else "fell"
    if change == 0:
        return False, "did not change"
    if change < 0:
        return False, f"moved the wrong way: it should have moved {direction}"
    if p_value >= ALPHA:
        return False, f"no trend beyond chance: p = {p_value:.2g}, {ALPHA:g} or less is needed"
    if effect < MIN_EFFECT:
        return False, f"{verb} by {effect:.1f} standard errors, {MIN_EFFECT:g} are needed"
    if change < min_change:
        return False, f"{verb} by {change:.4g}, {min_change:g} is asked for"
    return True, f"{verb} beyond its noise"


def _ratio(change: float, error: float) -> float:
    if error > 0:
        return change / error
    return math.copysign(math.inf, change) if change else 0.0


# -- trend -------------------------------------------------------------------------------------------


def trend_p_value(values: Sequence[float], inflation: float = 1.0) -> float:
    """One-sided p-value of the Mann-Kendall test for an upward trend; 1 for a constant.

    `inflation` multiplies the variance of independent values.
    """
    n = len(values)
    score = sum((b > a) - (b < a) for i, a in enumerate(values) for b in values[i + 1 :])
    ties = sum(t * (t - 1) * (2 * t + 5) for t in Counter(values).values())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18 * inflation
    if variance <= 0 or score == 0:
        return 1.0 if variance <= 0 else 0.5
    z = (score - math.copysign(1, score)) / math.sqrt(variance)  # continuity correction
    return 0.5 * math.erfc(z / math.sqrt(2))


def theil_sen(series: Sequence[tuple[float, float]]) -> float:
    """Median slope per step over all pairs of points."""
    slopes = sorted(
        (later - earlier) / (step_b - step_a)
        for i, (step_a, earlier) in enumerate(series)
        for step_b, later in series[i + 1 :]
    )
    middle = len(slopes) // 2
    return slopes[middle] if len(slopes) % 2 else (slopes[middle - 1] + slopes[middle]) / 2


# -- noise -------------------------------------------------------------------------------------------


def _noise(curve: Curve) -> tuple[float, float]:
    """Standard deviation around the curve, and the correlation of a residual with the one before."""
    n = len(curve.rest)
    if not curve.squares:
        return 0.0, 0.0
    products = math.fsum(a * b for a, b in pairwise(curve.rest))
    # Fitting k parameters to n independent values leaves residuals correlated by about -k/n.
    correlation = products / curve.squares + curve.parameters / n
    deviation = math.sqrt(curve.squares / (n - curve.parameters))
    return deviation, min(MAX_CORRELATION, max(0.0, correlation))


def _inflation(correlation: float) -> float:
    """The factor by which correlation raises the variance of a mean over independent values."""
    return (1 + correlation) / (1 - correlation)
