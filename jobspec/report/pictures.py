"""Geometry of the report's pictures: plain numbers that the template puts into inline SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jobspec.metrics.envelope import FEW_POINTS, envelope
from jobspec.metrics.learning_signal import thin
from jobspec.report.content import Bar, Curve, Report
from jobspec.report.lines import number
from jobspec.units import duration

WIDTH, HEIGHT = 340, 150  # of one curve, in SVG units
LEFT, RIGHT, TOP, BOTTOM = 54, 12, 12, 22
MAX_MARKS = 40  # up to this number each point is drawn and has a tooltip
SMOOTH_SHARE = 12  # the trend line is a mean over a twelfth of the points
MIN_SMOOTHED = 12

LINE_WIDTH, LINE_LEFT, ROW_HEIGHT = 860, 130, 24  # of the time line
MIN_BAR = 2.0
MAX_NODE_ROWS = 16
MAX_TICKS = 7
# Readable seconds between ticks: 1, 2 and 5, then divisors of minutes and hours.
TICK_STEPS = (
    0.05,
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    1200,
    1800,
    3600,
    7200,
    14400,
    43200,
)


@dataclass(frozen=True)
class Tick:
    """A label on an axis at `at`."""

    at: float
    label: str


@dataclass(frozen=True)
class CurvePicture:
    """One metric: `line` is the raw curve, `trend` the smoothed one (empty for few points).

    `beside` is the known-good run's curve, smoothed where it has enough points; empty without a baseline.
    """

    curve: Curve
    line: str
    trend: str
    marks: tuple[tuple[float, float, str], ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    alone: bool
    beside: str = ""


@dataclass(frozen=True)
class Span:
    """One bar of the time line."""

    x: float
    width: float
    outcome: str
    title: str


@dataclass(frozen=True)
class Row:
    """One row of the time line; `inner` rows show a single node."""

    y: float
    label: str
    seconds: str
    inner: bool
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class TimeLine:
    """All phases of all attempts."""

    height: float
    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]


def draw_curve(curve: Curve) -> CurvePicture:
    """The picture of one metric."""
    points, beside = (envelope(part, FEW_POINTS) for part in (curve.points, curve.beside))
    drawn = (*points, *beside)
    x_low, x_high = _range([x for x, _ in drawn])
    y_low, y_high = _range([y for _, y in drawn])

    def place(x: float, y: float) -> tuple[float, float]:
        right = LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
        up = TOP + (y_high - y) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)
        return round(right, 1), round(up, 1)

    marks = tuple((*place(x, y), f"step {number(x)}: {number(y)}") for x, y in points)
    # A trend is of means: the extremes alone would give each spike half of the weight.
    smooth = _smooth(thin(curve.points, FEW_POINTS)) if len(points) >= MIN_SMOOTHED else []
    theirs = _smooth(thin(curve.beside, FEW_POINTS)) if len(beside) >= MIN_SMOOTHED else beside
    first, last = min(x for x, _ in drawn), max(x for x, _ in drawn)
    middle = (y_low + y_high) / 2
    return CurvePicture(
        curve=curve,
        line=_path([place(x, y) for x, y in points]),
        trend=_path([place(x, y) for x, y in smooth]),
        marks=marks if len(marks) <= MAX_MARKS else (),
        x_ticks=tuple(Tick(place(x, y_low)[0], number(x)) for x in dict.fromkeys((first, last))),
        y_ticks=tuple(Tick(place(x_low, y)[1], number(y)) for y in (y_low, middle, y_high)),
        alone=len(points) == 1,
        beside=_path([place(x, y) for x, y in theirs]),
    )


def draw_time_line(report: Report) -> TimeLine | None:
    """The picture of the phases; None without an event that says when a phase ran."""
    bars = [bar for bar in report.bars if bar.end >= bar.start]
    if not bars:
        return None
    start, end = min(bar.start for bar in bars), max(bar.end for bar in bars)
    span = max(end - start, 0.1)
    scale = (LINE_WIDTH - LINE_LEFT) / span
    rows = tuple(_row(at, label, group, start, scale) for at, (label, group) in enumerate(_groups(bars)))
    ticks = tuple(Tick(round(LINE_LEFT + at * scale, 1), _time_label(at, span)) for at in _times(span))
    return TimeLine(len(rows) * ROW_HEIGHT, rows, ticks)


def _times(span: float) -> Iterator[float]:
    """Seconds of the ticks of a time line of `span` seconds."""
    step = next((step for step in TICK_STEPS if span / step < MAX_TICKS), span / (MAX_TICKS - 1))
    yield from (step * part for part in range(int(span / step) + 1))


def _time_label(seconds: float, span: float) -> str:
    unit, name = next(
        (unit, name) for unit, name in ((3600, "h"), (60, "min"), (1, "s")) if span >= 2 * unit or unit == 1
    )
    return f"{seconds / unit:.4g} {name}"


def _groups(bars: Sequence[Bar]) -> Iterator[tuple[str, list[Bar]]]:
    """Rows in order: the phases of each attempt; with few nodes, each phase is followed by its nodes."""
    several = len({bar.attempt for bar in bars}) > 1
    nodes = {bar.node for bar in bars if bar.node}
    for attempt, phase in dict.fromkeys((bar.attempt, bar.phase) for bar in bars):
        mine = [bar for bar in bars if (bar.attempt, bar.phase) == (attempt, phase)]
        whole = [bar for bar in mine if not bar.node] or mine
        yield f"{attempt}. {phase}" if several else phase, whole
        if 1 < len(nodes) <= MAX_NODE_ROWS:
            for node in sorted({bar.node for bar in mine if bar.node}):
                yield f"\u00a0{node}", [bar for bar in mine if bar.node == node]


def _row(at: int, label: str, bars: Sequence[Bar], start: float, scale: float) -> Row:
    spans = tuple(
        Span(
            x=round(LINE_LEFT + (bar.start - start) * scale, 1),
            width=round(max(MIN_BAR, (bar.end - bar.start) * scale), 1),
            outcome=bar.outcome or "unknown",
            title=f"{bar.phase} {bar.node} {bar.outcome}, {duration(bar.end - bar.start)}".replace("  ", " "),
        )
        for bar in bars
    )
    seconds = duration(sum(bar.end - bar.start for bar in bars)) if len(bars) == 1 else ""
    return Row(at * ROW_HEIGHT, label, seconds, label.startswith("\u00a0"), spans)


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Lowest and highest value, never equal."""
    low, high = min(values), max(values)
    if low == high:
        half = abs(low) / 2 or 0.5
        return low - half, high + half
    return low, high


def _smooth(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Centred moving mean, over fewer points near the ends: a one-sided mean would level off every rise."""
    most = max(1, len(points) // SMOOTH_SHARE // 2 + 1)
    smooth = []
    for at, (x, _) in enumerate(points):
        half = min(most, at, len(points) - 1 - at)
        part = [y for _, y in points[at - half : at + half + 1]]
        smooth.append((x, math.fsum(part) / len(part)))
    return smooth


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g},{y:g}" for x, y in points) if points else ""
