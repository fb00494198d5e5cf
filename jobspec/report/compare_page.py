"""Compared runs as one HTML page: verdicts, the settings that differ, phases, and a plot for each metric."""

from __future__ import annotations

from collections.abc import Sequence

from jobspec.judging.compare import Comparison
from jobspec.metrics.envelope import Point, envelope
from jobspec.metrics.names import LIKELY
from jobspec.report.content import MAX_POINTS
from jobspec.report.page import render_page
from jobspec.report.pictures import PlotPicture, draw_plot
from jobspec.report.plots import Line, Plot

MAX_OPEN = 12  # without a usual name, so many plots are seen at first


def render_comparison(comparison: Comparison) -> str:
    """The page of two or more runs."""
    labels = _labels(comparison)
    lines = {name: plot_lines(labels, curves) for name, curves in comparison.curves if any(curves)}
    first, more = split_metrics(list(lines))
    return render_page(
        "compare.html.j2",
        scripted=bool(lines),
        comparison=comparison,
        labels=labels,
        first=[_picture(name, lines[name]) for name in first],
        more=[_picture(name, lines[name]) for name in more],
    )


def _labels(comparison: Comparison) -> tuple[str, ...]:
    """What each run is called: its name where all have another one, else its id."""
    names = dict(comparison.settings).get("name", ())
    return names if len(set(names)) == len(comparison.runs) else comparison.runs


def plot_lines(names: Sequence[str], curves: Sequence[Sequence[Point]]) -> tuple[Line, ...]:
    """A line for each run, also for one without values: its colour is the same in every plot."""
    return tuple(
        Line(name, tuple(envelope(curve, MAX_POINTS))) for name, curve in zip(names, curves, strict=True)
    )


def split_metrics(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Metrics to see at once, those with a usual name, and the others."""
    usual = [name for likely in LIKELY.values() for name in likely if name in names]
    first = list(dict.fromkeys(usual)) or list(names[:MAX_OPEN])
    return first, [name for name in names if name not in first]


def _picture(name: str, lines: tuple[Line, ...]) -> PlotPicture:
    return draw_plot(Plot(name, lines))
