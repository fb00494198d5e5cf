"""docs/troubleshooting.md is fresh and lists every signature."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.reference.signatures import PAGE, main, table, with_table
from jobspec.triage import load_signatures

ROOT = Path(__file__).parents[2]


def test_page_is_fresh() -> None:
    page = (ROOT / PAGE).read_text("utf-8")
    assert page == with_table(page), "run: python -m jobspec.reference.signatures"


def test_every_signature_is_listed() -> None:
    text = table()
    assert [item.id for item in load_signatures() if f"`{item.id}`" not in text] == []


def test_renewing_brings_a_stale_page_up_to_date(tmp_path: Path) -> None:
    page = (ROOT / PAGE).read_text("utf-8")
    (tmp_path / "docs").mkdir()
    (tmp_path / PAGE).write_text(page.replace("No space", "").replace("disk.full", "gone"), "utf-8")
    main(tmp_path)
    assert (tmp_path / PAGE).read_text("utf-8") == page


def test_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="needs one"):
        with_table("# nothing here\n")
