"""The documentation as a site: it builds without a warning, and its pages ask nobody on the network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobspec.reference import machine_pages

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


def test_machines_get_each_page_as_markdown_and_a_list(tree: Path) -> None:
    (tree / ".cache/site").mkdir(parents=True)
    machine_pages.main(tree)
    site = tree / ".cache/site"
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): (.+)$", (site / "llms.txt").read_text(), re.M)
    assert sorted(name for name, _ in listed) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))
    assert {name: (site / name).read_text() for name, _ in listed} == {
        page.name: page.read_text() for page in (ROOT / "docs").glob("*.md")
    }
    assert ("spec.md", "One YAML file says what a run is") in listed
    assert (site / "llms.txt").read_text().startswith("# jobspec\n\n> Declarative, verified RL")


@pytest.mark.parametrize("link", ["nosuch.md", "spec.md#nosuch"])
def test_a_link_to_nowhere_is_an_error(tree: Path, link: str) -> None:
    with (tree / "docs/spec.md").open("a") as page:
        page.write(f"\n[there]({link})\n")
    assert build(tree).returncode != 0


def test_every_page_is_in_the_contents() -> None:
    contents = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f": {page.name}\n" not in contents] == []
