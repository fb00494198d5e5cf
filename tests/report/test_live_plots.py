"""The plots of a page in a real Chromium: opened as a copied file, offline, by mouse and by keyboard."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobspec.report.content import Curve, Report
from jobspec.report.html import render_html
from jobspec.report.plots import Line, Plot, in_words, plot_data
from jobspec.verdict import Result, Verdict

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Open = Callable[..., "Page"]
MANY = 100_000
SPIKE = 65_432
RISING = tuple((float(step), step / 100) for step in range(1, 101))
REPORT = Report(Verdict(Result.PASS, "smoke"), "run-1", "demo", "/runs/run-1", "command")
# Values along the plot that are drawn, and the range that is seen.
DRAWN = "figure => figure.chart.data.map(column => Array.from(column))"
SEEN = "figure => [figure.chart.scales.x.min, figure.chart.scales.x.max]"
# How high above the bottom something is drawn in the line's colour, from 0 to 1.
HEIGHT = """figure => {
  const {canvas} = figure.chart.ctx, {left, top, width, height} = figure.chart.bbox;
  const pixels = figure.chart.ctx.getImageData(left, top, width, height);
  const [r, g, b] = [0x2a, 0x6f, 0xbb];
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) {
    const [red, green, blue, alpha] = pixels.data.subarray(4 * (y * width + x));
    const off = Math.abs(red - r) + Math.abs(green - g) + Math.abs(blue - b);
    if (off < 90 && alpha > 60) return 1 - y / height;
  }
  return 0;
}"""


def page_of(*curves: Curve) -> str:
    return render_html(replace(REPORT, curves=curves))


def first(page: Page) -> Any:
    page.wait_for_selector("figure.drawn canvas")
    return page.locator("figure").first


def test_plots_take_the_place_of_their_pictures(opened: Open) -> None:
    page = opened(page_of(Curve("reward", "reward", RISING)))
    figure = first(page)
    assert figure.locator("svg").is_hidden()
    assert figure.locator("canvas").is_visible()


def test_policy_of_the_page_stops_any_other_script_and_every_request(
    browser: Browser, tmp_path: Path
) -> None:
    more = (
        "<script>document.title = 'gone'</script><img src='http://127.0.0.1:9/x' onerror='document.title=1'>"
    )
    file = tmp_path / "page.html"
    file.write_text(page_of(Curve("reward", "reward", RISING)).replace("<main>", f"<main>{more}"))
    page, said = browser.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.goto(file.as_uri())
    first(page)
    assert page.title() == "Pass: demo smoke"
    assert len([text for text in said if "Content Security Policy" in text]) == 3
    page.close()


@pytest.mark.parametrize(
    "name", ["</script><script>document.title='gone'</script>", "<!--<script>", "a\u2028b&amp;"]
)
def test_name_cannot_end_the_data(opened: Open, name: str) -> None:
    page = opened(page_of(Curve(name, name, RISING, beside=RISING, baseline=name)))
    figure = first(page)
    assert page.title() == "Pass: demo smoke"
    assert name in figure.locator(".u-legend").inner_text()
    assert json.loads(plot_data(Plot(name, (Line(name, RISING),))))["lines"][0]["name"] == name


def test_spike_of_one_point_among_many_is_seen(opened: Open) -> None:
    points = tuple((float(step), 100.0 if step == SPIKE else 1 + step % 7 / 10) for step in range(MANY))
    page = opened(page_of(Curve("loss", "loss", points)))
    figure = first(page)
    steps, values = figure.evaluate(DRAWN)
    assert (len(steps), values[SPIKE]) == (MANY, 100)
    assert figure.evaluate(HEIGHT) > 0.9


def test_drag_zooms_and_a_double_click_goes_back(opened: Open) -> None:
    page = opened(page_of(Curve("reward", "reward", RISING)))
    figure = first(page)
    box = figure.locator(".u-over").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, middle, steps=4)
    page.mouse.up()
    low, high = figure.evaluate(SEEN)
    assert 24 < low < 28 and 48 < high < 53
    page.mouse.dblclick(box["x"] + box["width"] / 2, middle)
    assert figure.evaluate(SEEN) == [1, 100]


def test_hover_shows_the_values_of_a_step(opened: Open) -> None:
    page = opened(page_of(Curve("reward", "reward", RISING, beside=RISING[::2], baseline="known good")))
    figure = first(page)
    box = figure.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 30 / 99, box["y"] + 20)
    names, values = (figure.locator(f".u-series {cell}").all_inner_texts() for cell in ("th", "td"))
    assert dict(zip(names, values, strict=True)) == {"step": "31", "this run": "0.31", "known good": "0.31"}


def test_log_scale_leaves_out_what_has_no_logarithm(opened: Open) -> None:
    points = ((1.0, 0.001), (2.0, 0.0), (3.0, 10.0))
    page = opened(page_of(Curve("loss", "loss", points), Curve("below", "below", ((1.0, -1.0), (2.0, -2.0)))))
    figure = first(page)
    page.get_by_label("log scale").check()
    assert figure.evaluate(DRAWN)[1] == [0.001, None, 10]
    assert figure.evaluate("figure => figure.chart.scales.y.distr") == 3
    assert page.locator("figure").last.evaluate("figure => figure.chart.scales.y.distr") == 1
    page.get_by_label("log scale").uncheck()
    assert figure.evaluate(DRAWN)[1] == [0.001, 0, 10]


def test_smoothing_keeps_the_raw_values(opened: Open) -> None:
    page = opened(page_of(Curve("reward", "reward", ((1.0, 0.0), (2.0, 1.0), (3.0, 1.0)))))
    figure = first(page)
    page.get_by_label("smoothing").fill("0.5")
    raw, trend = figure.evaluate(DRAWN)[1:]
    assert raw == [0, 1, 1]
    assert trend == pytest.approx([0, 2 / 3, 6 / 7])
    assert figure.evaluate("figure => figure.chart.series[1].stroke()").endswith("55")


def test_keyboard_moves_the_cursor_and_zooms(opened: Open) -> None:
    page = opened(page_of(Curve("reward", "reward", RISING)))
    figure = first(page)
    live = figure.locator(".live")
    live.focus()
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
    assert figure.locator(".unseen").inner_text() == "step 2, reward 0.02"
    page.keyboard.press("Shift+ArrowRight")
    assert figure.locator(".unseen").inner_text() == "step 22, reward 0.22"
    page.keyboard.press("End")
    assert figure.locator(".unseen").inner_text() == "step 100, reward 1"
    page.keyboard.press("+")
    low, high = figure.evaluate(SEEN)
    assert (low, high) == (50.5, 100)
    page.keyboard.press("-")
    assert figure.evaluate(SEEN) == [1, 100]
    page.keyboard.press("+")
    page.keyboard.press("0")
    assert figure.evaluate(SEEN) == [1, 100]
    assert live.get_attribute("aria-label") == (
        "reward: 0.01 at step 1, 1 at step 100, lowest 0.01 at step 1, highest 1 at step 100"
    )


def test_every_line_can_be_hidden_by_its_name(opened: Open) -> None:
    page = opened(page_of(Curve("reward", "reward", RISING, beside=RISING, baseline="known good")))
    figure = first(page)
    shown = "figure => figure.chart.series.slice(1).map(one => one.show)"
    figure.get_by_role("button", name="known good").focus()
    page.keyboard.press("Enter")
    assert figure.evaluate(shown) == [True, False]
    page.get_by_label("smoothing").fill("0.9")
    assert figure.evaluate(shown) == [True, True, False, False]
    figure.get_by_role("button", name="known good").click()
    assert figure.evaluate(shown) == [True, True, True, True]


def test_colours_follow_the_system_while_the_page_is_open(opened: Open) -> None:
    page = opened(page_of(Curve("reward", "reward", RISING)), color_scheme="dark", reduced_motion="reduce")
    figure = first(page)
    line = "figure => figure.chart.series[1].stroke()"
    assert figure.evaluate(line) == "#6fb1f5"
    page.keyboard.press("Tab")
    page.emulate_media(color_scheme="light")
    page.wait_for_function("() => document.querySelector('figure').chart.series[1].stroke() === '#2a6fbb'")
    assert page.evaluate("document.getAnimations().length") == 0


def test_paper_and_browsers_without_script_have_the_picture(opened: Open) -> None:
    html = page_of(Curve("reward", "reward", RISING))
    page = opened(html)
    figure = first(page)
    page.emulate_media(media="print")
    assert figure.locator("svg").is_visible()
    assert figure.locator("canvas").is_hidden() and page.locator(".tools").is_hidden()
    plain = opened(html, java_script_enabled=False)
    assert plain.locator("figure svg").is_visible()
    assert plain.locator(".tools").is_hidden() and plain.locator(".live").is_hidden()


def test_dark_pages_are_printed_light(opened: Open) -> None:
    page = opened(page_of(Curve("reward", "reward", RISING)), color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--text')") == "#1a1f27"


def test_plot_in_words_names_ends_and_extremes() -> None:
    plot = Plot("loss", (Line("a", ((1, 2.0), (2, 9.0), (3, 1.0))), Line("b", ())))
    assert in_words(plot) == (
        "loss: a 2 at step 1, 1 at step 3, lowest 1 at step 3, highest 9 at step 2; b has no values"
    )
