"""Explains a series in two ways: as a rise with noise around it, and as noise with a memory. Pure.

A rise is a line, a sigmoid or any curve that never falls. A sigmoid follows a reward that takes off late,
rises quickly and levels off; its right half follows a reward that only saturates. A curve that never falls
follows several stages and stairs. Noise with a memory is white noise at one end and a random walk at the
other. The difference of the two log-likelihoods is the evidence for the rise. A break, after which a curve
rises anew from another level or falls, follows harder data and a peak that is partly lost.
Source: G. H. Golub and V. Pereyra, SIAM J. Numerical Analysis 10 (1973) 413, for the sigmoid: least squares
solve for level and height, a grid has the middles and widths. R. E. Barlow et al., Statistical Inference
under Order Restrictions (1972), for curves that never fall. M. Meyer and M. Woodroofe, Annals of Statistics
28 (2000) 1083, for their number of parameters. D. A. Harville, Biometrika 61 (1974) 383, for the likelihood
of noise whose mean is not known.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from operator import mul

INEXACT = 1e-6  # of the squares around the mean: a smaller rest is the fit's own error, not noise
# Places run from -1 to 1. With a middle outside, half of the sigmoid remains: a rise that only saturates, or
# only takes off. The narrowest rise takes about three points: a narrower rise would fit an outlier.
REACH = 2.0
MIDDLES, WIDTHS = 41, 9
# Of a value for the next one. 1 is a random walk.
MEMORIES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)
# Added to the log-likelihoods, so that a random walk passes as seldom with one kind of curve as with another.
LINE_BONUS, MONOTONE_CHARGE, BREAK_CHARGE = 3.0, 6.0, 16.0
EDGE_SHARE = 8  # a break is looked for outside of the first and the last eighth
MIN_BROKEN = 24  # points: fewer would fit two curves to chance


@dataclass(frozen=True)
class Curve:
    """What a fitted curve leaves: the residuals `rest`, and the `freedom` that they have."""

    rest: Sequence[float]
    freedom: float
    bonus: float
    negligible: float  # a smaller sum of squares of `rest` is the fit's own error

    @property
    def variance(self) -> float:
        """The variance of the noise around the curve."""
        return max(math.fsum(r * r for r in self.rest), self.negligible) / max(self.freedom, 1.0)

    @property
    def evidence(self) -> float:
        """Log-likelihood of the values as this curve with white noise."""
        return -(len(self.rest) - 1) / 2 * math.log(self.variance) + self.bonus


def rises(values: Sequence[float]) -> tuple[Curve, Curve, Curve]:
    """The best line, the best sigmoid and the best curve that never falls. `values` are not all equal."""
    level = _centred(values)
    negligible = max(INEXACT * math.fsum(v * v for v in level), sys.float_info.min)
    line = _without(level, _unit(_places(len(level))))
    return (
        Curve(line, len(level) - 2, LINE_BONUS, negligible),
        Curve(sigmoid_residuals(level), len(level) - 3, 0.0, negligible),
        Curve(*_around(level), -MONOTONE_CHARGE, negligible),
    )


def broken_rise(values: Sequence[float]) -> Curve:
    """The best curve that never falls before a break and never falls, or never rises, after it."""
    level = _centred(values)
    negligible = max(INEXACT * math.fsum(v * v for v in level), sys.float_info.min)
    edge = max(3, len(level) // EDGE_SHARE)
    pairs = [
        (_around(level[:cut]), _around([sign * value for value in level[cut:]]))
        for cut in range(edge, len(level) - edge + 1)
        for sign in (1, -1)
    ]
    curves = [Curve([*a, *b], m + n, -BREAK_CHARGE, negligible) for (a, m), (b, n) in pairs]
    return max(curves, key=lambda curve: curve.evidence)


def memory_evidence(values: Sequence[float]) -> float:
    """Log-likelihood of the values as noise of the memory that explains them best, around no trend."""
    return max(_remembered(values, keep) for keep in MEMORIES)


def _remembered(values: Sequence[float], keep: float) -> float:
    n = len(values)
    first = math.sqrt(1 - keep * keep)
    news = [first * values[0], *(later - keep * earlier for earlier, later in pairwise(values))]
    size = (1 - keep) * (1 + keep + (n - 1) * (1 - keep))  # squares of what the mean adds to `news`
    mean_part = first * news[0] + (1 - keep) * math.fsum(news[1:])
    squares = math.fsum(x * x for x in news) - (mean_part**2 / size if size else 0.0)
    shape = math.log((1 + keep) / (1 + keep + (n - 1) * (1 - keep))) / 2
    return shape - (n - 1) / 2 * math.log(max(squares, sys.float_info.min) / (n - 1))


def monotone(values: Sequence[float]) -> list[float]:
    """The least-squares curve that never falls: neighbours in the wrong order share their mean."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        total, size = value, 1
        while blocks and blocks[-1][0] * size >= total * blocks[-1][1]:
            total, size = total + blocks[-1][0], size + blocks[-1][1]
            blocks.pop()
        blocks.append((total, size))
    return [total / size for total, size in blocks for _ in range(size)]


def _around(values: Sequence[float]) -> tuple[list[float], int]:
    """What the curve that never falls leaves of `values`, and its freedom."""
    curve = monotone(values)
    return [a - b for a, b in zip(values, curve, strict=True)], len(values) - len(set(curve))


def sigmoid_residuals(level: Sequence[float]) -> list[float]:
    """The residuals of the best rising sigmoid, height * tanh((place - middle) / width)."""

    def height(shape: Sequence[float]) -> float:
        return float(sum(map(mul, shape, level)))

    top: Sequence[float] = max(_sigmoids(len(level)), key=height)
    return _without(level, top) if height(top) > 0 else list(level)


@lru_cache(maxsize=4)  # a table of metrics has few lengths
def _sigmoids(count: int) -> list[list[float]]:
    """Sigmoids of all middles and widths: a finer grid explains hardly more."""
    narrowest, widest = math.log(2 / (count - 1)), math.log(REACH)
    widths = [math.exp(narrowest + i * (widest - narrowest) / (WIDTHS - 1)) for i in range(WIDTHS)]
    middles = [REACH * (2 * i / (MIDDLES - 1) - 1) for i in range(MIDDLES)]
    return [_unit([math.tanh((x - m) / w) for x in _places(count)]) for m in middles for w in widths]


# -- vectors -----------------------------------------------------------------------------------------


def _places(n: int) -> list[float]:
    return [2 * i / (n - 1) - 1 for i in range(n)]


def _centred(values: Sequence[float]) -> list[float]:
    mean = math.fsum(values) / len(values)
    return [value - mean for value in values]


def _unit(values: Sequence[float]) -> list[float]:
    """The shape of `values` with mean 0 and length 1; all 0 for a shape that is flat."""
    centred = _centred(values)
    length = math.sqrt(sum(map(mul, centred, centred)))
    return [value / length for value in centred] if length > 1e-5 else [0.0] * len(centred)


def _without(vector: Sequence[float], unit: Sequence[float]) -> list[float]:
    share = math.fsum(map(mul, vector, unit))
    return [a - share * b for a, b in zip(vector, unit, strict=True)]
