"""Fits curves to the values of a metric, to tell a rise from the noise around it. Pure.

The family of curves holds the shapes of real training, because a part of a rise that no curve follows looks
like noise with a long memory. A sigmoid follows a reward that takes off late, rises quickly and levels off;
no polynomial of low degree does. The right half of a sigmoid follows a reward that only saturates.
Polynomials follow lines and gentle bends. Splines follow several stages, and a plateau that is lost again.
Schwarz's criterion charges each curve for its parameters, so that flat and short series are not overfitted.
Source: G. Schwarz, Annals of Statistics 6 (1978) 461, for the criterion. G. H. Golub and V. Pereyra, SIAM J.
Numerical Analysis 10 (1973) 413, for the sigmoid: least squares solve for level and height, a search finds
middle and width. C. de Boor, A Practical Guide to Splines (1978), for splines as sums of bumps.
L. Vostrikova, Soviet Mathematics Doklady 24 (1981) 55, for the search of one jump after the other. Y.-C. Yao,
Statistics and Probability Letters 6 (1988) 181, for the number of jumps by Schwarz's criterion.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

ROUNDING = 1e-12  # anything below this share of the values is the arithmetic's own error
INEXACT = 1e-6  # of the squares around the mean: a smaller rest is the fit's own error, not noise
DEGREES = (1, 2, 3)
INTERVALS = (3, 4, 6, 8, 12, 16, 24, 32)  # between the knots of cubic splines
SPLINE_SHARE = 3  # points for each parameter of a spline, or of a staircase, at least
MIN_JUMPS, MAX_JUMPS = 4, 12  # by chance four jumps all go one way once in eight
MIN_STEP = 3  # points of a step of a staircase: with fewer, each outlier would be a step
# Places run from -1 to 1. With a middle outside, half of the sigmoid remains: a rise that only saturates, or
# only takes off. The narrowest rise takes about three points: a narrower rise would fit an outlier.
REACH = 2.0
MIDDLES = 25
WIDTHS = 6
HALVINGS = 9  # of the grid's mesh, in the search for the best sigmoid
SIMPLE = 4  # parameters of a sigmoid (level, height, middle, width); polynomials have no more
BUMPS = 4  # of a cubic spline reach any one place


@dataclass(frozen=True)
class Curve:
    """The residuals `rest` of a fitted curve, and its number of parameters."""

    rest: Sequence[float]
    parameters: int
    negligible: float  # a sum of squares of `rest` below this is the fit's own error

    @property
    def squares(self) -> float:
        """The sum of squares of `rest`; 0 where it is the fit's own error."""
        squares = math.fsum(r * r for r in self.rest)
        return squares if squares > self.negligible else 0.0

    @property
    def cost(self) -> float:
        """Schwarz's criterion: a smaller cost means a better explanation of the values."""
        n = len(self.rest)
        return n * math.log(max(self.squares, self.negligible) / n) + self.parameters * math.log(n)


def best(candidates: Iterable[Curve]) -> Curve:
    """The curve of the lowest cost."""
    return min(candidates, key=lambda curve: curve.cost)


def curves(values: Sequence[float]) -> list[Curve]:
    """The best of each kind for `values`: polynomials, a sigmoid, splines."""
    negligible = _negligible(values)
    candidates = [Curve(residuals(values, degree), degree + 1, negligible) for degree in DEGREES]
    candidates.append(Curve(sigmoid_residuals(values), SIMPLE, negligible))
    for intervals in INTERVALS:
        if (intervals + 3) * SPLINE_SHARE <= len(values):
            candidates.append(Curve(spline_residuals(values, intervals), intervals + 3, negligible))
    return candidates


def _negligible(values: Sequence[float]) -> float:
    tiny = ROUNDING * max(map(abs, values))
    spread = math.fsum(x * x for x in residuals(values, 0))
    return max(tiny * tiny * len(values), INEXACT * spread, sys.float_info.min)


# -- polynomials -------------------------------------------------------------------------------------


def residuals(values: Sequence[float], degree: int) -> list[float]:
    """The residuals of the least-squares polynomial of `degree` over equally spaced points."""
    places = _places(len(values))
    rest = list(values)
    basis: list[list[float]] = []
    for power in range(degree + 1):
        vector = [place**power for place in places]
        for other in basis:  # Gram-Schmidt: each new direction loses its shares of the earlier ones
            vector = _without(vector, other)
        length = math.sqrt(math.fsum(x * x for x in vector))
        basis.append([x / length for x in vector])
        rest = _without(rest, basis[-1])
    return rest


def _places(n: int) -> list[float]:
    return [2 * i / (n - 1) - 1 for i in range(n)]


def _without(vector: Sequence[float], unit: Sequence[float]) -> list[float]:
    share = math.fsum(a * b for a, b in zip(vector, unit, strict=True))
    return [a - share * b for a, b in zip(vector, unit, strict=True)]


# -- sigmoid -----------------------------------------------------------------------------------------


def sigmoid_residuals(values: Sequence[float]) -> list[float]:
    """The residuals of the best sigmoid, level + height * tanh((place - middle) / width)."""
    level = residuals(values, 0)
    shape = _unit_sigmoid(_places(len(values)), *_best_sigmoid(level))
    return _without(level, shape) if shape else level


def _best_sigmoid(level: Sequence[float]) -> tuple[float, float]:
    """Middle and logarithm of the width: the best point of a coarse grid, then a climb from there."""
    places = _places(len(level))
    narrowest, widest = math.log(2 / (len(level) - 1)), math.log(REACH)
    mesh = (2 * REACH / (MIDDLES - 1), (widest - narrowest) / (WIDTHS - 1))

    def explained(point: tuple[float, float]) -> float:
        middle, width = point
        if abs(middle) > REACH or not narrowest <= width <= widest:
            return -1.0
        shape = _unit_sigmoid(places, middle, width)
        return sum(map(mul, shape, level)) ** 2 if shape else 0.0

    grid = [(i * mesh[0] - REACH, narrowest + j * mesh[1]) for i in range(MIDDLES) for j in range(WIDTHS)]
    top = max(grid, key=explained)
    for halving in range(1, HALVINGS + 1):
        top = _climb(explained, top, (mesh[0] / 2**halving, mesh[1] / 2**halving))
    return top


def _climb(
    height: Callable[[tuple[float, float]], float], point: tuple[float, float], step: tuple[float, float]
) -> tuple[float, float]:
    """The highest point that steps along either axis reach from `point`."""
    (x, y), (a, b) = point, step
    while (top := max(((x, y), (x - a, y), (x + a, y), (x, y - b), (x, y + b)), key=height)) != (x, y):
        x, y = top
    return x, y


def _unit_sigmoid(places: Sequence[float], middle: float, log_width: float) -> list[float] | None:
    """The sigmoid with mean 0 and length 1; None for a sigmoid that is flat over all places."""
    steep = math.exp(-log_width)
    shape = [math.tanh((place - middle) * steep) for place in places]
    mean = sum(shape) / len(shape)
    shape = [x - mean for x in shape]
    squares = sum(map(mul, shape, shape))
    if squares < 1e-9:
        return None
    length = math.sqrt(squares)
    return [x / length for x in shape]


# -- splines -----------------------------------------------------------------------------------------


def spline_residuals(values: Sequence[float], intervals: int) -> list[float]:
    """The residuals of the least-squares cubic spline with equal intervals."""
    level = residuals(values, 0)
    rows = [_bumps(i * intervals / (len(values) - 1), intervals) for i in range(len(values))]
    squares = [[0.0] * BUMPS for _ in range(intervals + 3)]  # from the diagonal to the right
    products = [0.0] * (intervals + 3)
    for (first, weights), value in zip(rows, level, strict=True):
        for i, weight in enumerate(weights):
            products[first + i] += weight * value
            for j in range(i, BUMPS):
                squares[first + i][j - i] += weight * weights[j]
    factors = _solve(squares, products)
    return [
        value - sum(map(mul, weights, factors[first:]))
        for (first, weights), value in zip(rows, level, strict=True)
    ]


def _bumps(place: float, intervals: int) -> tuple[int, tuple[float, ...]]:
    """The first of the four bumps that reach `place`, and their heights there. `place` counts intervals."""
    first = min(int(place), intervals - 1)
    x = place - first
    y = 1 - x
    return first, (y**3 / 6, 2 / 3 - x * x + x**3 / 2, 2 / 3 - y * y + y**3 / 2, x**3 / 6)


def _solve(band: list[list[float]], right: list[float]) -> list[float]:
    """The solution of symmetric equations, in place. A row of `band` begins at the main diagonal."""
    size = len(right)
    for i in range(size):
        for j in range(1, min(BUMPS, size - i)):
            factor = band[i][j] / band[i][0]
            right[i + j] -= factor * right[i]
            for k in range(j, BUMPS):
                band[i + j][k - j] -= factor * band[i][k]
    for i in reversed(range(size)):
        known = sum(map(mul, band[i][1:], right[i + 1 :]))
        right[i] = (right[i] - known) / band[i][0]
    return right


# -- staircases --------------------------------------------------------------------------------------


def staircase(values: Sequence[float]) -> Curve | None:
    """The best staircase: levels with jumps between them. None unless many jumps all go one way.

    The search finds one jump after the other, the largest gain first. Each jump costs two parameters, its
    place and its height. None for too few points, for too few jumps, and for jumps in both directions.
    """
    level, negligible = residuals(values, 0), _negligible(values)
    sums = list(accumulate(level, initial=0.0))
    parts = {(0, len(level)): _best_jump(sums, 0, len(level))}
    staircases = []
    for jumps in range(1, min(MAX_JUMPS, (len(level) // SPLINE_SHARE - 1) // 2) + 1):
        start, end = max(parts, key=lambda part: parts[part][0])
        gain, at = parts.pop((start, end))
        if not gain:
            break
        parts |= {part: _best_jump(sums, *part) for part in ((start, at), (at, end))}
        means = [((sums[b] - sums[a]) / (b - a), a, b) for a, b in sorted(parts)]
        rest = [value - mean for mean, a, b in means for value in level[a:b]]
        staircases.append((Curve(rest, 2 * jumps + 1, negligible), [mean for mean, _, _ in means]))
    curve, steps = min(staircases, key=lambda item: item[0].cost, default=(None, []))
    one_way = steps in (sorted(steps), sorted(steps, reverse=True))
    return curve if one_way and len(steps) > MIN_JUMPS else None


def _best_jump(sums: Sequence[float], start: int, end: int) -> tuple[float, int]:
    """The gain of the best jump between `start` and `end` in squares, and its place; 0 for too few points."""
    total, size = sums[end] - sums[start], end - start
    best, place = 0.0, start
    for at in range(start + MIN_STEP, end - MIN_STEP + 1):
        left = sums[at] - sums[start]
        gain = left**2 / (at - start) + (total - left) ** 2 / (end - at) - total**2 / size
        if gain > best:
            best, place = gain, at
    return best, place
