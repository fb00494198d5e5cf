"""Small logs of whole runs: which line is told as the first cause, and what must not be said of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobspec.triage import LogSource, first_cause, scan_files
from jobspec.triage.deciding_facts import port_of

RUNS = yaml.safe_load(Path(__file__).with_name("runs.yaml").read_text("utf-8"))


@pytest.mark.parametrize("run", RUNS, ids=[run["name"] for run in RUNS])
def test_of_a_run_is_told_what_its_logs_show(run: dict[str, Any], tmp_path: Path) -> None:
    for name, text in run["logs"].items():
        (tmp_path / name).write_text(text, "utf-8", newline="")
    matches = scan_files([LogSource(tmp_path / name, name) for name in run["logs"]])
    cause = first_cause(matches)
    told = f"{cause.signature}/{cause.kind}/{cause.verdict}" if cause is not None else "none"
    assert re.search(run["cause"], told), told
    said = {match: f"{match.title} {match.why} {match.facts}" for match in matches}
    text, words = (cause.text, said[cause]) if cause is not None else ("", "".join(said.values()))
    assert run.get("line", "") in text
    assert run.get("says", "") in words
    assert not [untrue for untrue in run.get("not", ()) if untrue in "".join(said.values())]
    advice = cause.fix if cause is not None else ""
    assert run.get("advises", "") in advice
    assert run.get("advises_not", "\0") not in advice
    assert port_of(text) == run.get("port", port_of(text))
