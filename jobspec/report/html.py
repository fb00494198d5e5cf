"""The report as one HTML file that can be mailed, archived and printed. The template escapes every value."""

from __future__ import annotations

from jobspec.report import pictures
from jobspec.report.content import Report
from jobspec.report.lines import tracker_lines, where
from jobspec.report.page import render_page
from jobspec.report.plots import Line, Plot
from jobspec.report.summary import guide_form, state
from jobspec.verdict import Deliverable, Status


def render_html(report: Report) -> str:
    """The report as an HTML page."""
    curves, usage = ([pictures.draw_plot(plot) for plot in plots] for plots in (_plots(report), report.usage))
    return render_page(
        "report.html.j2",
        scripted=bool(curves or usage),
        report=report,
        verdict=report.verdict,
        where=where(report),
        guide_form=guide_form(report, after=""),
        quiet=[item for item in report.verdict.deliverables if _is_quiet(item)],
        curves=curves,
        usage=usage,
        states=[(repo, state(report, repo)) for repo in report.repos],
        time_line=pictures.draw_time_line(report),
        trackers=list(zip(report.trackers, tracker_lines(report), strict=True)),
    )


def _is_quiet(item: Deliverable) -> bool:
    """Whether there is nothing to say of it but its name: all of these stand in one row."""
    return item.status is Status.NOT_REQUESTED and not item.reason and not item.evidence


def _plots(report: Report) -> list[Plot]:
    """A plot for each curve, beside the known-good run's where there is one."""
    return [
        Plot(
            curve.name,
            (
                Line("this run" if curve.beside else curve.name, curve.points),
                *((Line(curve.baseline, curve.beside, known_good=True),) if curve.beside else ()),
            ),
            curve.metric,
            curve.not_finite,
        )
        for curve in report.curves
    ]
