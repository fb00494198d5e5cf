"""The points of a curve, and fewer of them that show the same: no peak is averaged away."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from jobspec.runtime.base.metric_files import Row

FEW_POINTS = 400  # of a small picture: no more fit side by side

Point = tuple[float, float]


def finite_points(rows: Sequence[Row]) -> list[Point]:
    """Step and value of the finite rows; where a row has no step, all count by their place."""
    placed = any(row.step is None for row in rows)
    return [
        (float(at if placed or row.step is None else row.step), row.value)
        for at, row in enumerate(rows, 1)
        if math.isfinite(row.value)
    ]


def envelope(points: Sequence[Point], limit: int) -> Sequence[Point]:
    """At most `limit` points (four or more): the ends, and between them the extremes of equal blocks.

    Every point stays as it was logged, in its order.

    >>> envelope([(1, 0), (2, 9), (3, 1), (4, -5), (5, 2), (6, 3)], 4)
    [(1, 0), (2, 9), (4, -5), (6, 3)]
    """
    if len(points) <= limit:
        return points
    return [points[0], *_extremes(points, (limit - 2) // 2), points[-1]]


def _extremes(points: Sequence[Point], blocks: int) -> Iterator[Point]:
    """The lowest and the highest point of each of `blocks` blocks between the first and the last point."""
    inner = len(points) - 2
    for at in range(blocks):
        start, end = (1 + inner * edge // blocks for edge in (at, at + 1))
        block = range(start, end)
        low, high = min(block, key=lambda i: points[i][1]), max(block, key=lambda i: points[i][1])
        yield from (points[i] for i in sorted({low, high}))
