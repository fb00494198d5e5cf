"""docs/architecture.md shows the rooms that the import contract has, and the house keeps its own rules."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from jobspec.reference.rooms import PAGE, layers, main, picture, with_picture

ROOT = Path(__file__).parents[2]
SOURCES = [path for top in ("jobspec", "launchers", "runtime") for path in sorted((ROOT / top).rglob("*.py"))]
LONG = 400


def test_picture_is_fresh() -> None:
    page = (ROOT / PAGE).read_text("utf-8")
    assert page == with_picture(page, ROOT), "run: python -m jobspec.reference.rooms"


def test_every_room_is_described() -> None:
    rows = picture(ROOT).splitlines()
    assert [row for row in rows if row.endswith("|  |")] == []
    assert {"planning", "runtime", "finding"} <= {room for line in layers(ROOT) for room in line}


def test_renewing_brings_a_stale_page_up_to_date(tmp_path: Path) -> None:
    page = (ROOT / PAGE).read_text("utf-8")
    for path in (ROOT / "jobspec", ROOT / "launchers", ROOT / "runtime", ROOT / ".importlinter"):
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "docs").mkdir()
    (tmp_path / PAGE).write_text(page.replace('["planning"]', '["plans"]'), "utf-8")
    main(tmp_path)
    assert (tmp_path / PAGE).read_text("utf-8") == page


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_long_module_gives_its_reason(path: Path) -> None:
    """Above 400 lines the docstring says why: "400 lines" stands in it."""
    text = path.read_text("utf-8")
    if text.count("\n") > LONG:
        assert re.search(r"\b400 lines\b", ast.get_docstring(ast.parse(text)) or ""), (
            "split it, or give the reason"
        )


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMED = re.compile(r"`((?:jobspec|launchers|runtime|tests|docs|benchmarks)/[\w/.*-]+)`")
# Files of the frameworks' own checkouts, and a folder of the user's configuration.
FOREIGN = ("tests/unit", "tests/functional", "tests/test_suites", "tests/check_metrics.py", "tests/json_dump",
           "tests/special_e2e", "jobspec/clusters")  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    """Paths in this project's pages follow every move."""
    names = [name for name in NAMED.findall(page.read_text("utf-8")) if not name.startswith(FOREIGN)]
    assert [name for name in names if not list(ROOT.glob(name.rstrip("/")))] == []
