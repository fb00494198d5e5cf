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


def test_a_variant_that_the_framework_blocks_is_told_apart(levels: Project) -> None:
    levels.write("b.log", "building\nNotImplementedError: no adapter for this model\n")
    entry = "coverage.not_applicable=[{variant: b, why: it has no adapter, evidence: 'b.log:2'}]"
    done = levels.cli("run", "all.yaml", "--set", "coverage.variants=[a]", "--set", entry)
    assert done.code == 0, done.text
    assert "Result: Pass - 2 of 2 runs passed, 1 variant not applicable" in done.out
    told = "- Variant b: Not requested - not applicable, blocked by command: it has no adapter"
    assert done.out.count(f"{told} [{levels.root}/b.log:2]") == 1
    report = json.loads((levels.last().root / "points/0/report.json").read_text())
    item = report["deliverables"]["Variant b"]
    assert item["evidence"][0]["text"] == "NotImplementedError: no adapter for this model"
    assert "variant `b` did not run: nothing is proved about it" in report["limitations"]


@pytest.mark.parametrize(
    ("variant", "evidence", "word"),
    [
        ("bb", "b.log:2", "no level of `command` has a variant `bb`"),
        ("b", "c.log", "there is no file"),
        ("b", "b.log:9", "has no line 9"),
    ],
)
def test_what_shows_it_must_be_there(levels: Project, variant: str, evidence: str, word: str) -> None:
    levels.write("b.log", "building\nNotImplementedError\n")
    entry = f"coverage.not_applicable=[{{variant: {variant}, why: w, evidence: '{evidence}'}}]"
    done = levels.cli("validate", "all.yaml", "--set", "coverage.variants=[a]", "--set", entry)
    assert done.code == 2 and word in done.text
    url = entry.replace(evidence, "https://example.org/issues/1").replace("bb", "b")
    assert levels.cli("validate", "all.yaml", "--set", "coverage.variants=[a]", "--set", url).code == 0


def test_what_a_level_trains_by_itself_is_not_blocked_as_well(levels: Project) -> None:
    blocked = "coverage.not_applicable=[{variant: VARIANT, why: w, evidence: 'https://example.org/1'}]"
    alone = (
        "validate",
        "all.yaml",
        "--set",
        "~coverage.levels",
        "--set",
        "~coverage.variants",
        "--level",
        "0",
    )
    done = levels.cli(*alone, "--set", blocked.replace("VARIANT", "a"))
    assert done.code == 2 and "`a` is what level `first` trains" in done.text
    assert "name another in `coverage.variants`: `b`" in done.text
    assert levels.cli(*alone, "--set", blocked.replace("VARIANT", "b")).code == 0
    asked = ("--set", "coverage.variants=[b]")
    assert levels.cli(*alone, *asked, "--set", blocked.replace("VARIANT", "a")).code == 0


def test_levels_are_checked_before_anything_runs(levels: Project) -> None:
    assert levels.cli("validate", "all.yaml").code == 0
    wrong = levels.cli("validate", "all.yaml", "--set", "coverage.variants=[bb]")
    assert wrong.code == 2 and "none of the levels has a variant `bb`" in wrong.text
    assert levels.cli("explain", "all.yaml", "coverage.level", "--json").json == {
        "coverage.level": {"value": "first", "origin": "set coverage.levels [0, 1]"}
    }
