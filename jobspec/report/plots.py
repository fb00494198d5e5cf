"""What a plot shows: lines over steps or seconds; in words, and as JSON for a page's script."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobspec.metrics.envelope import Point
from jobspec.units import duration

STEP, TIME = "step", "time"  # what lies along a plot
DIGITS = 7  # of a value in a page: more than its readers see
# No `<` or `&`: a name must not end the element that the JSON stands in.
_SAFE = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}


@dataclass(frozen=True)
class Line:
    """One line: a metric of a run, or of a node. `known_good`: it is there to compare with, and dashed."""

    name: str
    points: tuple[Point, ...]
    known_good: bool = False


@dataclass(frozen=True)
class Plot:
    """Lines on one scale. `along` is STEP or TIME, in seconds; `span` is its range where that is given."""

    name: str
    lines: tuple[Line, ...]
    metric: str = ""
    not_finite: int = 0
    along: str = STEP
    span: tuple[float, float] | None = None

    @property
    def wide(self) -> bool:
        """Whether it stands below the time line of the phases, on the same scale."""
        return self.span is not None


def in_words(plot: Plot) -> str:
    """The plot for those who do not see it."""
    return f"{plot.name}: " + "; ".join(_line_in_words(line, plot) for line in plot.lines)


def _line_in_words(line: Line, plot: Plot) -> str:
    if not line.points:
        return f"{line.name} has no values"
    (first, start), (last, end) = line.points[0], line.points[-1]
    low, high = min(line.points, key=lambda p: p[1]), max(line.points, key=lambda p: p[1])
    name = "" if len(plot.lines) == 1 else f"{line.name} "
    return (
        f"{name}{start:.4g} at {_place(first, plot)}, {end:.4g} at {_place(last, plot)}, "
        f"lowest {low[1]:.4g} at {_place(low[0], plot)}, highest {high[1]:.4g} at {_place(high[0], plot)}"
    )


def _place(x: float, plot: Plot) -> str:
    return f"step {x:.12g}" if plot.along == STEP else duration(x)


def plot_data(plot: Plot) -> str:
    """JSON that the page's script draws, safe inside a script element."""
    data: Mapping[str, Any] = {
        "name": plot.name,
        "along": plot.along,
        "span": plot.span,
        "lines": [
            {
                "name": line.name,
                "dashed": line.known_good,
                "x": [_short(x) for x, _ in line.points],
                "y": [float(f"{y:.{DIGITS}g}") for _, y in line.points],
            }
            for line in plot.lines
        ],
    }
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_SAFE)


def _short(x: float) -> float:
    return int(x) if x == int(x) else round(x, 3)
