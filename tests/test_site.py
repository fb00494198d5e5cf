"""The documentation as a site: it builds without a warning, and its pages ask nobody on the network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOREIGN = re.compile(r'(?:src|href)="((?:https?:)?//[^"]+\.(?:js|css|woff2?)[^"]*)"')


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    return tmp_path


def build(tree: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "zensical", "build", "--strict"]
    return subprocess.run(words, cwd=tree, capture_output=True, text=True, check=False)


def test_the_site_builds_and_asks_nobody(tree: Path) -> None:
    done = build(tree)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {page.stem: page.read_text() for page in (tree / ".cache/site").glob("*.html")}
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} < {*pages}
    assert {name: found for name, text in pages.items() if (found := FOREIGN.findall(text))} == {}


@pytest.mark.parametrize("link", ["nosuch.md", "spec.md#nosuch"])
def test_a_link_to_nowhere_is_an_error(tree: Path, link: str) -> None:
    with (tree / "docs/spec.md").open("a") as page:
        page.write(f"\n[there]({link})\n")
    assert build(tree).returncode != 0


def test_every_page_is_in_the_contents() -> None:
    contents = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f": {page.name}\n" not in contents] == []
