"""Could a series have got there without a cause? Two questions to a random walk. Pure.

A trend test takes the noise around a trend for short-lived. A metric that wanders, where each step only adds
to the last, then passes far too often. So either the change must be larger than such a walk explains, or the
values must be seen to return to their curve, which a walk does not.
Source: Harvey, Leybourne and Taylor, J. Econometrics 141 (2007) 1302, for a trend under both kinds of noise
and its statistic from increments; Newey and West, Econometrica 55 (1987) 703, for their variance; Ouliaris,
Park and Phillips in "Advances in Econometrics and Modelling" (1989) for a unit root around a polynomial.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

LAG_SHARE = 10  # of the increments' own dependence: a tenth of the points, and one
# Chosen by simulation for all together: docs/verdict.md has the table.
MIN_DRIFT = 3.0
# Degree of the curve -> the t below which values return to it. Five bends follow a quick rise with a long
# plateau; a walk seems to return to them sooner, so more is asked for.
MAX_REVERSION = {3: -4.5, 5: -5.5}


MIN_STEADY = 6.0


def wanders(values: Sequence[float], drift: float, window: int) -> bool:
    """Whether a random walk explains the change; `drift` is `drift_ratio` in the asked direction."""
    if drift >= MIN_DRIFT:
        return False
    returns = any(reversion(values, degree) <= limit for degree, limit in MAX_REVERSION.items())
    return not returns or abs(steady_ratio(values, window)) < MIN_STEADY


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


def steady_ratio(values: Sequence[float], window: int) -> float:
    """The same change in standard errors of noise that returns to a line, however long that takes.

    The noise is that of the calmer half, or of the whole: a quick rise is in one half and is no noise.
    """
    change = (math.fsum(values[-window:]) - math.fsum(values[:window])) / window
    half = len(values) // 2
    variance = min(_noise_around_line(part) for part in (values, values[:half], values[half:]))
    return _ratio(change, math.sqrt(max(0.0, variance) * 2 / window), values)


def _noise_around_line(values: Sequence[float]) -> float:
    rest = residuals(values, 1)
    return _long_run_variance(rest, 1 + len(values) // LAG_SHARE, freedom=len(rest) - 2)


def _ratio(change: float, error: float, values: Sequence[float]) -> float:
    if error <= 1e-12 * max(map(abs, values)):  # the arithmetic's own
        return math.copysign(math.inf, change) if change else 0.0
    return change / error


def _long_run_variance(rest: Sequence[float], lags: int, freedom: int) -> float:
    """Variance of a sum of the values for each of them, with Bartlett's weights."""
    total = math.fsum(x * x for x in rest)
    for lag in range(1, lags + 1):
        products = math.fsum(a * b for a, b in zip(rest, rest[lag:], strict=False))
        total += 2 * (1 - lag / (lags + 1)) * products
    return total / freedom


def reversion(values: Sequence[float], degree: int) -> float:
    """Dickey and Fuller's t around a polynomial: the more negative, the faster the values return to it."""
    rest = residuals(values, degree)
    before, steps = rest[:-1], [later - earlier for earlier, later in pairwise(rest)]
    squares = math.fsum(x * x for x in before)
    if squares <= (1e-12 * max(map(abs, values))) ** 2 * len(values):
        return -math.inf  # on its curve to the last digit
    pull = math.fsum(a * b for a, b in zip(before, steps, strict=True)) / squares
    left = math.fsum((b - pull * a) ** 2 for a, b in zip(before, steps, strict=True))
    spread = math.sqrt(left / max(1, len(steps) - 1 - degree) / squares)
    return pull / spread if spread > 0 else math.copysign(math.inf, pull)


def residuals(values: Sequence[float], degree: int) -> list[float]:
    """What a least-squares polynomial over equally spaced points leaves of `values`."""
    n = len(values)
    places = [2 * i / (n - 1) - 1 for i in range(n)]
    rest = list(values)
    basis: list[list[float]] = []
    for power in range(degree + 1):
        vector = [place**power for place in places]
        for other in basis:  # Gram-Schmidt: each new direction is freed of the ones before
            vector = _without(vector, other)
        length = math.sqrt(math.fsum(x * x for x in vector))
        basis.append([x / length for x in vector])
        rest = _without(rest, basis[-1])
    return rest


def _without(vector: Sequence[float], unit: Sequence[float]) -> list[float]:
    share = math.fsum(a * b for a, b in zip(vector, unit, strict=True))
    return [a - share * b for a, b in zip(vector, unit, strict=True)]
