"""A real Chromium, without a network, that remembers what a page complained about or asked for."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kits.programs_kit import skip_or_fail

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium")


def missing() -> str:
    """Why no page can be opened; empty where one can."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "the Python package playwright is not installed (extra `dev`)"
    return "" if CHROMIUM else "chromium is not installed (.ci/debian-packages)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if reason := missing():
        skip_or_fail(reason, "JOBSPEC_REQUIRE_CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # The sandbox is for pages of strangers, and root has none.
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Opens a page's text as a file without a network. At the end nothing may have been asked for or said."""
    said: list[str] = []
    asked: list[str] = []
    contexts = []

    def open_page(html: str, **options: Any) -> Page:
        file = tmp_path / "copied elsewhere.html"
        file.write_text(html)
        context = browser.new_context(viewport={"width": 1100, "height": 900}, offline=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        asked.remove(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert (said, asked) == ([], [])
