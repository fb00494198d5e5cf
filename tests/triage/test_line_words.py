"""What is said of a line holds for that line: siblings of the samples that an older wording was untrue of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobspec.triage import scan_lines

LINES = [
    row
    for file in sorted(Path(__file__).with_name("line_words").glob("*.yaml"))
    for row in yaml.safe_load(file.read_text("utf-8"))
]


@pytest.mark.parametrize("row", LINES, ids=[row["lines"][:60] for row in LINES])
def test_what_is_said_of_a_line_holds_for_it(row: dict[str, Any]) -> None:
    matches = scan_lines(row["lines"].splitlines())
    assert [match.signature for match in matches][:1] == ([row["is"]] if row["is"] else [])
    said = "".join(f"{match.title} {match.why} {match.fix}" for match in matches)
    assert not [untrue for untrue in row.get("not", ()) if untrue in said]
    assert row.get("says", "") in said
