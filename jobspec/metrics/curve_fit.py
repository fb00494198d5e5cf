"""Which curve do the values of a metric follow? A fit that tells a rise from the noise around it. Pure.

What a curve misses of a real rise looks like noise with a long memory, so the family must hold the shapes
that training has. A reward that takes off late, rises quickly and levels off is a sigmoid, which no
polynomial of low degree follows; one that only saturates is its right half. Lines and gentle bends are
polynomials. Several stages, and a plateau that is lost again, are splines. Flat and short series must not be
overfitted: Schwarz's criterion charges each curve for its parameters.
Source: G. Schwarz, Annals of Statistics 6 (1978) 461, for the criterion. G. H. Golub and V. Pereyra, SIAM J.
Numerical Analysis 10 (1973) 413, for the sigmoid: its level and height are solved for, only its middle and
width are searched. C. de Boor, A Practical Guide to Splines (1978), for splines as sums of bumps.
L. Vostrikova, Soviet Mathematics Doklady 24 (1981) 55, for jumps found one after the other; Y.-C. Yao,
Statistics and Probability Letters 6 (1988) 181, for their number by Schwarz's criterion.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

ROUNDING = 1e-12  # what is below this share of the values is the arithmetic's own
INEXACT = 1e-6  # of the squares around the mean: what less than that is left is the fit's own, and no noise
DEGREES = (1, 2, 3)
INTERVALS = (3, 4, 6, 8, 12, 16, 24, 32)  # between the knots of cubic splines
SPLINE_SHARE = 3  # points for each parameter of a spline, or of a staircase, at least
MIN_JUMPS, MAX_JUMPS = 4, 12  # four jumps all go up or all go down by chance once in eight
MIN_STEP = 3  # points of a step of a staircase: with fewer each outlier would be one
# Places run from -1 to 1. A middle outside them leaves a half of the sigmoid: a rise that only saturates, or
# only takes off. The narrowest rise takes about three points: a narrower one would be fitted to an outlier.
REACH = 2.0
MIDDLES = 25
WIDTHS = 6
HALVINGS = 9  # of the grid's mesh, in the search for the best sigmoid
SIMPLE = 4  # parameters of a sigmoid (level, height, middle, width); polynomials have no more
BUMPS = 4  # of a cubic spline reach any one place


@dataclass(frozen=True)
class Curve:
    """What the curve leaves of the values, and how many parameters it took."""

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
        """Schwarz's criterion: the smaller, the better does the curve explain the values."""
        n = len(self.rest)
        return n * math.log(max(self.squares, self.negligible) / n) + self.parameters * math.log(n)


def best(candidates: Iterable[Curve]) -> Curve:
    """The one that explains the values best for its parameters."""
    return min(candidates, key=lambda curve: curve.cost)


def curves(values: Sequence[float]) -> list[Curve]:
    """The best of each kind for `values`: polynomials, a sigmoid, splines."""
    negligible = _negligible(values)
    found = [Curve(residuals(values, degree), degree + 1, negligible) for degree in DEGREES]
    found.append(Curve(sigmoid_residuals(values), SIMPLE, negligible))
    for intervals in INTERVALS:
        if (intervals + 3) * SPLINE_SHARE <= len(values):
            found.append(Curve(spline_residuals(values, intervals), intervals + 3, negligible))
    return found


def _negligible(values: Sequence[float]) -> float:
    tiny = ROUNDING * max(map(abs, values))
    spread = math.fsum(x * x for x in residuals(values, 0))
    return max(tiny * tiny * len(values), INEXACT * spread, sys.float_info.min)


# -- polynomials -------------------------------------------------------------------------------------


def residuals(values: Sequence[float], degree: int) -> list[float]:
    """What a least-squares polynomial over equally spaced points leaves of `values`."""
    places = _places(len(values))
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


def _places(n: int) -> list[float]:
    return [2 * i / (n - 1) - 1 for i in range(n)]


def _without(vector: Sequence[float], unit: Sequence[float]) -> list[float]:
    share = math.fsum(a * b for a, b in zip(vector, unit, strict=True))
    return [a - share * b for a, b in zip(vector, unit, strict=True)]


# -- sigmoid -----------------------------------------------------------------------------------------


def sigmoid_residuals(values: Sequence[float]) -> list[float]:
    """What the best sigmoid leaves of `values`: level + height * tanh((place - middle) / width)."""
    level = residuals(values, 0)
    shape = _unit_sigmoid(_places(len(values)), *_best_sigmoid(level))
    return _without(level, shape) if shape else level


def _best_sigmoid(level: Sequence[float]) -> tuple[float, float]:
    """Middle and logarithm of the width: the best of a coarse grid, then climbed from there."""
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
    """The top that is reached from `point` by steps along either axis."""
    (x, y), (a, b) = point, step
    while (top := max(((x, y), (x - a, y), (x + a, y), (x, y - b), (x, y + b)), key=height)) != (x, y):
        x, y = top
    return x, y


def _unit_sigmoid(places: Sequence[float], middle: float, log_width: float) -> list[float] | None:
    """The sigmoid freed of its mean, of length 1; none where it is flat over all places."""
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
    """What a least-squares cubic spline with equal intervals leaves of `values`."""
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
    """The first of the four bumps that reach `place`, which counts in intervals, and their heights there."""
    first = min(int(place), intervals - 1)
    x = place - first
    y = 1 - x
    return first, (y**3 / 6, 2 / 3 - x * x + x**3 / 2, 2 / 3 - y * y + y**3 / 2, x**3 / 6)


def _solve(band: list[list[float]], right: list[float]) -> list[float]:
    """Solve symmetric equations, in place. `band` has the main diagonal and those right of it, by rows."""
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
    """The best levels with jumps between them, if all jumps go one way and are too many to do so by chance.

    Jumps are found one after the other, the most telling first. Each takes two parameters, its place and its
    height. None for too few points, too few jumps, and where one goes the other way.
    """
    level, negligible = residuals(values, 0), _negligible(values)
    sums = list(accumulate(level, initial=0.0))
    parts = {(0, len(level)): _best_jump(sums, 0, len(level))}
    found = []
    for jumps in range(1, min(MAX_JUMPS, (len(level) // SPLINE_SHARE - 1) // 2) + 1):
        start, end = max(parts, key=lambda part: parts[part][0])
        gain, at = parts.pop((start, end))
        if not gain:
            break
        parts |= {part: _best_jump(sums, *part) for part in ((start, at), (at, end))}
        means = [((sums[b] - sums[a]) / (b - a), a, b) for a, b in sorted(parts)]
        rest = [value - mean for mean, a, b in means for value in level[a:b]]
        found.append((Curve(rest, 2 * jumps + 1, negligible), [mean for mean, _, _ in means]))
    curve, steps = min(found, key=lambda item: item[0].cost, default=(None, []))
    one_way = steps in (sorted(steps), sorted(steps, reverse=True))
    return curve if one_way and len(steps) > MIN_JUMPS else None


def _best_jump(sums: Sequence[float], start: int, end: int) -> tuple[float, int]:
    """By how much a jump between `start` and `end` lowers the sum of squares, and where; 0 for too few."""
    total, size = sums[end] - sums[start], end - start
    best, place = 0.0, start
    for at in range(start + MIN_STEP, end - MIN_STEP + 1):
        left = sums[at] - sums[start]
        gain = left**2 / (at - start) + (total - left) ** 2 / (end - at) - total**2 / size
        if gain > best:
            best, place = gain, at
    return best, place
