"""`coverage.levels`: several trainings by one command, each with its own end, and one summary of all."""

from __future__ import annotations

import dataclasses
import json

import pytest

from jobspec.frameworks.command import RUN, CommandFramework
from tests.kits.project_kit import Project

LEVELS = (
    dataclasses.replace(RUN, name="first", variants=("a", "b")),
    dataclasses.replace(RUN, name="second", number=1),
)
# The training of level `first` with variant `b` ends in an error.
SPEC = """\
version: 1
name: all
framework: command
launch: {mode: srun}
coverage: {levels: [0, 1], variants: [b, a]}
train:
  command:
    - bash
    - -c
    - |
      for step in 1 2; do echo "{\\"step\\": $step, \\"score\\": 1}" >> "$JOBSPEC_METRICS_DIR/m.jsonl"; done
      grep -A3 '"variants"' "$JOBSPEC_RUN_DIR/plan.json" | grep '"b"' && exit 7; exit 0
"""


@pytest.fixture
def levels(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr(CommandFramework, "levels", LEVELS)
    project.write("all.yaml", SPEC)
    return project


def test_a_failed_training_hides_no_other_and_one_summary_has_all(levels: Project) -> None:
    done = levels.cli("run", "all.yaml")
    assert done.code == 1, done.text
    summary = done.out[done.out.index("Result: ") :].splitlines()
    assert summary[:5] == [
        "Result: Fail - 2 of 3 runs passed",
        "Requested coverage:",
        f"- Level 0 (first), variants b: {summary[2].partition(': ')[2]}",
        f"- Level 0 (first), variants a: Pass - {RUN.proves}",
        f"- Level 1 (second), no variants: Pass - {RUN.proves}",
    ]
    assert "Fail - command `command` (rank 0) exited with 7" in summary[2]
    last = levels.last()
    assert [
        json.loads((last.root / f"points/{index}/report.json").read_text())["result"] for index in range(3)
    ] == ["Fail", "Pass", "Pass"]
    told = levels.cli("report", "last", "--format", "summary")
    assert (told.code, told.out.splitlines()) == (1, summary[: len(told.out.splitlines())])
    table = levels.cli("report", "last", "--json").json
    assert [row["status"] for row in table["points"]] == ["FAIL", "OK", "OK"]


def test_levels_are_checked_before_anything_runs(levels: Project) -> None:
    assert levels.cli("validate", "all.yaml").code == 0
    wrong = levels.cli("validate", "all.yaml", "--set", "coverage.variants=[bb]")
    assert wrong.code == 2 and "none of the levels has a variant `bb`" in wrong.text
    assert levels.cli("explain", "all.yaml", "coverage.level", "--json").json == {
        "coverage.level": {"value": "first", "origin": "set coverage.levels [0, 1]"}
    }
