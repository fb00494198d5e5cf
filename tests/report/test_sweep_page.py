"""The page of a sweep: its points with links to their own pages, and their curves in one plot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from jobspec.report.sweep_tables import bars, render_sweep_table
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


def test_setting_of_several_lines_stays_in_its_row() -> None:
    several = table("print(1)\nprint(`2`)", "a|<b>_")
    header, first, second, *_ = render_sweep_table(several, "text").splitlines()
    assert (header.split()[1], first[7:24], second[7:13]) == ("lr", "print(1) print(`2", "a|<b>_")
    rows = render_sweep_table(several, "md").splitlines()[4:6]
    assert [row.split(" | ")[1] for row in rows] == ["print(1) print(`2`)", r"a\|\<b\>\_"]
    assert several.rows[0].sets["train.lr"] in render_sweep_table(several, "csv")


def test_point_without_settings_has_a_name_in_a_plot() -> None:
    point = SweepRow(0, {}, OK, metrics={"reward": 1.0})
    assert bars(SweepTable("run-1", "one", (point,)))[0].bars[0].label == "0: no change"
