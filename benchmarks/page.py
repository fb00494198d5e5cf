"""How long a report's page with long curves takes to write and to open in Chromium.

    python benchmarks/page.py [--points N] [--curves N] [--repeat N] [--json]

The page is a file, opened offline in a fresh window; medians of N. The window is 900 pixels high for what is
seen at first, then high enough for all curves.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from jobspec.report.content import Curve, Report
from jobspec.report.html import render_html
from jobspec.verdict import Result, Verdict

# Resolves when the canvases are painted: two frames after the last figure has one.
DRAWN = """count => new Promise(resolve => {
  const look = () => document.querySelectorAll('figure.drawn canvas').length >= count
    ? requestAnimationFrame(() => requestAnimationFrame(resolve)) : requestAnimationFrame(look);
  look();
})"""
REDRAW = """() => { const tools = document.querySelector('.tools');
  tools.log.checked = true; tools.smoothing.value = 0.9; tools.oninput(); }"""


def page(curves: int, points: int) -> str:
    rng = random.Random(0)
    drawn = tuple(
        Curve(
            f"metric {number}",
            "",
            tuple((float(step), math.exp(-step / points) + rng.gauss(0, 0.1)) for step in range(points)),
        )
        for number in range(curves)
    )
    verdict = Verdict(Result.PASS, "smoke")
    return render_html(Report(verdict, "run-1", "bench", "/runs/run-1", "command", curves=drawn))


def opened(browser: Browser, file: Path, curves: int, height: int) -> tuple[float, float]:
    """Seconds until `curves` are drawn, and those of drawing all anew."""
    context = browser.new_context(viewport={"width": 1100, "height": height}, offline=True)
    tab = context.new_page()
    begin = time.perf_counter()
    tab.goto(file.as_uri())
    tab.evaluate(DRAWN, curves)
    drawn = time.perf_counter()
    tab.evaluate(REDRAW)
    tab.evaluate(DRAWN, curves)
    again = time.perf_counter()
    context.close()
    return drawn - begin, again - drawn


def measure(curves: int, points: int, repeat: int) -> Iterator[tuple[str, float]]:
    begin = time.perf_counter()
    html = page(curves, points)
    yield f"write {curves} curves of {points} points, s", time.perf_counter() - begin
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder, "report.html")
        file.write_text(html)
        yield "size, MB", file.stat().st_size / 1e6
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        seen = [opened(browser, file, min(curves, 2), 900)[0] for _ in range(repeat)]
        whole = [opened(browser, file, curves, 4000) for _ in range(repeat)]
        browser.close()
    yield "open until the curves of the first screen are seen, s", statistics.median(seen)
    yield "open until all curves are drawn, s", statistics.median(first for first, _ in whole)
    yield "log scale and smoothing of all curves, s", statistics.median(again for _, again in whole)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--curves", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = dict(measure(args.curves, args.points, args.repeat))
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        print("\n".join(f"{value:8.2f}  {name}" for name, value in rows.items()))


if __name__ == "__main__":
    main()
