"""Geometry of the pictures: plain numbers that the templates put into inline SVG.

They are what is printed, and what is seen where no script runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from jobspec.metrics.envelope import FEW_POINTS, Point, envelope
from jobspec.metrics.learning_signal import thin
from jobspec.report.content import Bar, Report, time_line
from jobspec.report.lines import number
from jobspec.report.plots import STEP, TIME, Line, Plot
from jobspec.units import duration

TOP, BOTTOM = 12, 22
COLOURS = 8  # of the style; a ninth line begins anew
MAX_MARKS = 40  # up to this number each point is drawn and has a tooltip
SMOOTH_SHARE = 12  # the trend line is a mean over a twelfth of the points
MIN_SMOOTHED = 12

LINE_WIDTH, LINE_LEFT, LINE_RIGHT, ROW_HEIGHT = 860, 130, 70, 24  # of the time line
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
class Frame:
    """The size of a plot in SVG units, and the space left and right of its lines."""

    width: int
    height: int
    left: int
    right: int


SMALL = Frame(340, 150, 54, 12)
WIDE = Frame(LINE_WIDTH + LINE_RIGHT, 110, LINE_LEFT, LINE_RIGHT)  # below the time line, on its scale


@dataclass(frozen=True)
class LinePicture:
    """One line: `path` is raw, `trend` smoothed (empty for few points). `css` is its colour's class."""

    line: Line
    css: str
    path: str
    trend: str
    marks: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True)
class PlotPicture:
    """One plot; `alone` marks a single point."""

    plot: Plot
    frame: Frame
    lines: tuple[LinePicture, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    alone: bool


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


def draw_plot(plot: Plot) -> PlotPicture:
    """The picture of a plot with at least one point."""
    frame = WIDE if plot.wide else SMALL
    few = [envelope(line.points, FEW_POINTS) for line in plot.lines]
    drawn = [point for points in few for point in points]
    x_low, x_high = _range(plot.span or [x for x, _ in drawn])
    y_low, y_high = _range([y for _, y in drawn])

    def place(x: float, y: float) -> Point:
        right = frame.left + (x - x_low) / (x_high - x_low) * (frame.width - frame.left - frame.right)
        up = TOP + (y_high - y) / (y_high - y_low) * (frame.height - TOP - BOTTOM)
        return round(right, 1), round(up, 1)

    return PlotPicture(
        plot=plot,
        frame=frame,
        lines=tuple(
            _line(line, points, place, at, plot.along, len(drawn) <= MAX_MARKS)
            for at, (line, points) in enumerate(zip(plot.lines, few, strict=True))
        ),
        x_ticks=tuple(_x_ticks(plot, drawn, lambda x: place(x, y_low)[0])),
        y_ticks=tuple(Tick(place(x_low, y)[1], number(y)) for y in (y_low, (y_low + y_high) / 2, y_high)),
        alone=len(drawn) == 1,
    )


def _line(
    line: Line,
    points: Sequence[Point],
    place: Callable[[float, float], Point],
    at: int,
    along: str,
    marked: bool,
) -> LinePicture:
    # A trend is of means: the extremes alone would give each spike half of the weight.
    smoothed = along == STEP and len(points) >= MIN_SMOOTHED
    trend = _smooth(thin(line.points, FEW_POINTS)) if smoothed else []
    raw = () if line.known_good and trend else points
    return LinePicture(
        line=line,
        css="beside" if line.known_good else f"c{at % COLOURS}",
        path=_path([place(x, y) for x, y in raw]),
        trend=_path([place(x, y) for x, y in trend]),
        marks=tuple((*place(x, y), f"{number(x)}: {number(y)}") for x, y in points) if marked else (),
    )


def _x_ticks(plot: Plot, drawn: Sequence[Point], place: Callable[[float], float]) -> Iterator[Tick]:
    """First and last step; seconds as the time line has them."""
    if plot.along == TIME and plot.span is not None:
        span = plot.span[1] - plot.span[0]
        yield from (Tick(place(plot.span[0] + at), _time_label(at, span)) for at in _times(span))
        return
    for x in dict.fromkeys((min(x for x, _ in drawn), max(x for x, _ in drawn))):
        yield Tick(place(x), number(x))


def draw_time_line(report: Report) -> TimeLine | None:
    """The picture of the phases; None without an event that says when a phase ran."""
    bars = [bar for bar in report.bars if bar.end >= bar.start]
    if not bars:
        return None
    start, end = time_line(bars)
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


def _smooth(points: Sequence[Point]) -> list[Point]:
    """Centred moving mean, over fewer points near the ends: a one-sided mean would level off every rise."""
    most = max(1, len(points) // SMOOTH_SHARE // 2 + 1)
    smooth = []
    for at, (x, _) in enumerate(points):
        half = min(most, at, len(points) - 1 - at)
        part = [y for _, y in points[at - half : at + half + 1]]
        smooth.append((x, math.fsum(part) / len(part)))
    return smooth


def _path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:g},{y:g}" for x, y in points) if points else ""
