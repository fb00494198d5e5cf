"""The page of compared runs: what differs, and one plot of all runs for each metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from jobspec.judging.compare import Side, compare
from jobspec.report.compare_page import render_comparison, split_metrics

if TYPE_CHECKING:
    from playwright.sync_api import Page


def side(run: str, rate: str, *curves: str, every: int = 1) -> Side:
    points = [(float(step), step / 10) for step in range(1, 21, every)]
    return Side(
        run, {"train.lr": rate, "train.seed": "0"}, "Pass", {"driver": 90.0},
        {name: tuple(value for _, value in points) for name in curves}, dict.fromkeys(curves, points),
    )  # fmt: skip


def test_only_what_differs_is_listed() -> None:
    html = render_comparison(compare([side("a", "1e-5", "loss"), side("b", "3e-5", "loss")]))
    for part in ("1e-5", "3e-5", "train.lr", "1 min 30 s", "0.1 → 2 "):
        assert part in html
    assert "train.seed" not in html


def test_runs_without_metrics_have_a_page_without_a_script() -> None:
    html = render_comparison(compare([side("a", "1"), side("b", "1")]))
    assert "<script" not in html and "script-src" not in html
    assert "<p>None.</p>" in html


def test_usual_metrics_come_first() -> None:
    assert split_metrics(["perf/mfu", "loss", "reward"]) == (["reward", "loss"], ["perf/mfu"])
    assert split_metrics(["mine"]) == (["mine"], [])


def test_runs_share_a_plot_and_can_be_hidden_by_name(opened: Callable[..., Page]) -> None:
    """Runs that log at other steps stand at their own; the pointer finds the nearest value of each."""
    sides = [side("first", "1", "loss", "perf/mfu"), side("second", "2", "loss", every=5)]
    page = opened(render_comparison(compare([*sides, side("third", "3", "perf/mfu")])))
    figure = page.locator("figure.drawn").first
    columns = figure.evaluate("figure => figure.chart.data.map(column => Array.from(column))")
    assert len(columns) == 4 and columns[0] == list(range(1, 21))
    assert [at for at, value in zip(columns[0], columns[2], strict=True) if value is not None] == [
        1,
        6,
        11,
        16,
    ]
    box = figure.locator(".u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 6 / 19, box["y"] + 20)
    names, values = (figure.locator(f".u-series {cell}").all_inner_texts() for cell in ("th", "td"))
    assert names == ["step", "first", "second", "third"]
    assert values[:3] == ["7", "0.7", "0.6"]
    colours = figure.evaluate("figure => figure.chart.series.slice(1).map(one => one.stroke())")
    assert len(set(colours)) == 3
    figure.get_by_role("button", name="second").click()
    assert figure.evaluate("figure => figure.chart.series.slice(1).map(one => one.show)") == [
        True,
        False,
        True,
    ]
    page.get_by_text("1 more").click()
    page.wait_for_selector("details figure.drawn canvas")
