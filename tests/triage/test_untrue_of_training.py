"""Lines of one wording and several causes: what is said of each, and what would be untrue of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from jobspec.triage import first_cause, scan_lines

ROWS = yaml.safe_load(Path(__file__).with_name("untrue_of_training.yaml").read_text("utf-8"))


@pytest.mark.parametrize("row", ROWS, ids=[row["line"][:60] for row in ROWS])
def test_line_is_told_as_what_it_shows(row: dict[str, str]) -> None:
    lines = [row["line"]]
    if "statement" in row:
        frame = f'  File "/w/train.py", line 8, in {row["function"]}'
        lines = ["Traceback (most recent call last):", frame, f"    {row['statement']}", *lines]
    cause = first_cause(scan_lines(lines))
    assert cause is not None
    told = f"{cause.title}\n{cause.why}\n{cause.fix}"
    assert row.get("says", "") in told
    assert row["untrue"] not in told
