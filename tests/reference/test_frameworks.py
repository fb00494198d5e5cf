"""docs/frameworks.md is fresh and says what each level proves."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec import frameworks
from jobspec.reference.frameworks import PAGE, levels, with_levels

ROOT = Path(__file__).parents[2]


def test_page_of_levels_is_fresh() -> None:
    page = (ROOT / PAGE).read_text("utf-8")
    assert page == with_levels(page), "run: python -m jobspec.reference.frameworks"


@pytest.mark.parametrize("name", sorted(frameworks.BUILT_IN))
def test_every_level_is_on_the_page(name: str) -> None:
    framework = frameworks.get(name)
    text = levels()
    assert f"### `{name}`" in text
    assert [level.name for level in framework.levels if level.proves not in text] == []


def test_levels_need_their_marks() -> None:
    with pytest.raises(ValueError, match="needs one"):
        with_levels("# nothing here\n")
