"""docs/spec.md and docs/sites.md: the tables are fresh, and the YAML in them is valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobspec.reference.spec_keys import PAGES, main, with_reference
from jobspec.spec.find_site import parse_cluster
from jobspec.spec.load import parse_spec
from jobspec.spec.schema import Kind

ROOT = Path(__file__).parents[2]
KINDS: list[Kind] = ["job", "cluster"]


def yaml_blocks(page: Path) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("kind", KINDS)
def test_reference_is_fresh(kind: Kind) -> None:
    page = (ROOT / PAGES[kind]).read_text(encoding="utf-8")
    assert page == with_reference(page, kind), "run: python -m jobspec.reference.spec_keys"


def test_both_pages_are_rewritten_in_place(tmp_path: Path) -> None:
    for kind in KINDS:
        page = tmp_path / PAGES[kind]
        page.parent.mkdir(exist_ok=True)
        page.write_text(
            re.sub(r"(edit -->).*(<!-- end)", r"\1 stale \2", (ROOT / PAGES[kind]).read_text(), flags=re.S)
        )
    main(tmp_path)
    assert all((tmp_path / PAGES[kind]).read_text() == (ROOT / PAGES[kind]).read_text() for kind in KINDS)


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="needs one"):
        with_reference("# Page\n", "job")


def test_specs_in_the_docs_are_valid() -> None:
    blocks = yaml_blocks(ROOT / PAGES["job"])
    assert blocks
    for block in blocks:
        assert parse_spec(block, env={}).findings == ()


def test_profiles_in_the_docs_are_valid() -> None:
    blocks = yaml_blocks(ROOT / PAGES["cluster"])
    assert blocks
    for block in blocks:
        loaded = parse_cluster(block, Path("h200-efa.yaml"), env={"USER": "alice", "HOME": "/home/alice"})
        assert loaded.findings == ()
