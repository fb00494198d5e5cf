"""The page of a sweep: its points with links to their own pages, and their curves in one plot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from jobspec.report.sweep_tables import render_sweep_table
from jobspec.sweeps.table import OK, SweepRow, SweepTable

if TYPE_CHECKING:
    from playwright.sync_api import Page


def table(*rates: str) -> SweepTable:
    points = [(float(step), step / 10) for step in range(1, 21)]
    rows = (
        SweepRow(
            at, {"train.lr": rate}, OK, page=f"points/{at}/report.html", metrics={"reward": 2.0},
            curves={"reward": points if at else [], "loss": []},
        )
        for at, rate in enumerate(rates)
    )  # fmt: skip
    return SweepTable("run-1", "rates", tuple(rows))


def test_points_share_a_plot_and_keep_their_colours(opened: Callable[..., Page]) -> None:
    """A point without values keeps its place: the others have the same colour in every plot."""
    page = opened(render_sweep_table(table("1e-5", "3e-5", "<b>"), "html"))
    assert page.locator("figure").count() == 1, "no point has a loss"
    figure = page.locator("figure.drawn").first
    assert figure.locator(".u-series th").all_inner_texts() == [
        "step",
        "0: lr=1e-5",
        "1: lr=3e-5",
        "2: lr=<b>",
    ]
    colours = figure.evaluate("figure => figure.chart.series.slice(1).map(one => one.stroke())")
    assert colours == ["#2a6fbb", "#c4531a", "#1a7f4b"]
    links = page.locator(".bars a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
    assert links == ["points/0/report.html", "points/1/report.html", "points/2/report.html"]


def test_columns_without_a_value_are_left_out() -> None:
    html = render_sweep_table(table("1e-5"), "html")
    assert '<th scope="col">REWARD</th>' in html
    assert "PEAK GIB" not in html and "PEAK GIB" in render_sweep_table(table("1e-5"), "text")
