"""What the checks of a metric's course share: its usual step, and from where on it is bad. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from jobspec.metrics.trouble import Rows
from jobspec.runtime.base.metric_files import Row

MIN_ROWS = 3  # fewer constant values are no pattern
SURE = 8.0  # standard errors, of a peak that was looked for
PERSISTENT = 0.9  # share of the later steps that must show the pattern too


def since_row(rows: Rows, bad: Callable[[float], bool]) -> Row:
    """The first row that is bad and that bad ones follow."""
    marks = [bad(row.value) for row in rows]
    left = sum(marks)
    for i, row in enumerate(rows):
        if marks[i] and left >= PERSISTENT * (len(rows) - i):
            return row
        left -= marks[i]
    return rows[-1]


def usual_step(values: Sequence[float]) -> float:
    """The root mean square of the steps but the largest tenth: a fall may be among them.

    The steps of white noise have twice its variance, which makes this the error of a difference.
    """
    steps = sorted((b - a) ** 2 for a, b in pairwise(values))
    usual = steps[: len(steps) - max(1, len(steps) // 10)]
    return math.sqrt(math.fsum(usual) / len(usual))
