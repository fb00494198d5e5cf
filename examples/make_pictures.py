"""Make the pictures of pages in docs/pictures: real runs of bandit.yaml and a stall, a recorded one on a GPU.

    python examples/make_pictures.py [FOLDER]

Needs Chromium, and playwright from the extra `dev`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Locator, Page, sync_playwright

from jobspec.report import write_reports

HERE = Path(__file__).parent
RECORDED = HERE.parent / "tests/fixtures/skyrl_megatron"  # of an H200: SkyRL on Megatron, four steps
WIDTH = 860
STALLED = HERE.parent / "benchmarks/stall_cases"
STALL = """\
version: 1
name: stalled
framework: command
launch: {mode: srun, tasks_per_node: 4}
train: {command: [%s, -u, %s/skips_collective.py]}
watch: {stall: {after: 30s, action: end}}
"""
RATES = {"slow": "0.05", "bandit": "0.4", "fast": "2.0"}


def main() -> None:
    pictures = Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parent / "docs/pictures").resolve()
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for name, rate in RATES.items():
            jobspec(
                home, "run", str(HERE / "bandit.yaml"), f"--set=name={name}", f"--set=container.env.LR={rate}"
            )
        jobspec(home, "compare", *RATES, "--html", "compared.html")
        (report,) = home.glob("runs/bandit/*/report.html")
        shutil.copytree(RECORDED, home / "recorded")
        shutil.copytree(STALLED, home / "grpo")
        (home / "stalled.yaml").write_text(STALL % (sys.executable, home / "grpo"))
        jobspec(home, "run", "stalled.yaml")
        (stalled,) = home.glob("runs/stalled/*/report.html")
        recorded = write_reports(home / "recorded")["html"]
        with opened(report) as page:
            shot(page, pictures / "report.png", last=section(page, "curves"))
        with opened(report, dark=True) as page:
            look_closer(page)
            shot(page, pictures / "curves-dark.png", section(page, "curves"))
        with opened(home / "compared.html") as page:
            look_closer(page)
            shot(page, pictures / "compare.png", section(page, "settings"), section(page, "curves"))
        with opened(stalled, plots=False) as page:
            shot(page, pictures / "stalled.png", last=section(page, "cause"))
        with opened(recorded) as page:
            shot(page, pictures / "phases.png", section(page, "phases"))


def jobspec(home: Path, *arguments: str) -> None:
    """Like the command; a verdict that is no Pass is no mistake here."""
    done = subprocess.run([sys.executable, "-m", "jobspec.cli", *arguments], cwd=home, check=False)
    if done.returncode not in (0, 1, 3):
        sys.exit(f"`jobspec {' '.join(arguments)}` ended with {done.returncode}")


@contextmanager
def opened(file: Path, dark: bool = False, plots: bool = True) -> Iterator[Page]:
    """The page in a window that is high enough for all of it, so that every plot is drawn."""
    with sync_playwright() as playwright:
        program = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        view = {"width": WIDTH, "height": 4000}
        page = browser.new_page(viewport=view, color_scheme="dark" if dark else "light")  # type: ignore[arg-type]
        page.goto(file.as_uri())
        if plots:
            page.wait_for_selector("figure.drawn")
        yield page
        browser.close()


def section(page: Page, name: str) -> Locator:
    return page.locator(f"section[aria-labelledby={name}]")


def look_closer(page: Page) -> None:
    """Smoothed, and with the pointer over the first plot."""
    page.get_by_label("smoothing").first.fill("0.9")
    page.get_by_label("smoothing").first.blur()
    page.locator(".u-over").first.hover(position={"x": 150, "y": 60})


def shot(page: Page, file: Path, first: Locator | None = None, last: Locator | None = None) -> None:
    """A picture of the page from `first` (its head) to the end of `last` (the same)."""
    ends = [one.bounding_box() for one in (first, last or first) if one is not None]
    top = ends[0]["y"] - 12 if first is not None and ends[0] else 0
    bottom = ends[-1]["y"] + ends[-1]["height"] + 12 if ends[-1] else 0
    page.screenshot(path=file, clip={"x": 0, "y": top, "width": WIDTH, "height": bottom - top})
    print(f"{file}: {file.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
