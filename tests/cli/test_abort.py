"""A run that can prove nothing any more is ended, and its report says by what."""

from __future__ import annotations

import json

from tests.kits.project_kit import HELLO, Project


def test_condition_ends_the_run_and_the_report_says_where(project: Project) -> None:
    text = HELLO.replace("      for step in 1 2 3; do", "      for step in $(seq 1 600); do sleep 0.1")
    text = text.replace("max(score) >= 0.3", "max(score) >= 0.1")
    text = text.replace("metrics: {", 'metrics: {abort_when: ["count(score) >= 5 and min(score) < 0.2"], ')
    project.write("long.yaml", text)
    done = project.cli("run", "long.yaml")
    assert done.code == 1, done.text
    report = project.cli("report", "last", "--json").json
    cause = report["first_cause"]
    assert cause["class"] == "driver.aborted"
    assert "the run was ended at step" in cause["text"]
    assert "`min(score)` is 0.1" in cause["text"]
    assert "count(score) >= 5 and min(score) < 0.2" in cause["why"]
    results = json.loads((project.last().attempt(1) / "results.json").read_text())
    assert (results["outcome"], results["exit_code"]) == ("failed", 1)
    rows = (project.last().attempt(1) / "metrics/metrics.jsonl").read_text().splitlines()
    assert len(rows) < 600


def test_records_without_a_step_end_the_run_too(project: Project) -> None:
    """They were all taken for step 0: the report counted them, the run under way counted one."""
    text = HELLO.replace('{\\"step\\": $step, ', "{").replace("1 2 3; do", "$(seq 1 600); do sleep 0.1")
    assert "step\\" not in text
    text = text.replace("metrics: {", 'metrics: {abort_when: ["count(score) >= 3"], ')
    assert project.cli("run", project.write("long.yaml", text)).code == 1
    cause = project.cli("report", "last", "--json").json["first_cause"]
    assert cause["class"] == "driver.aborted"
    assert cause["text"].startswith("the run was ended: `count(score)` is ")


def test_condition_that_never_holds_changes_nothing(project: Project) -> None:
    text = HELLO.replace("metrics: {", 'metrics: {abort_when: ["max(score) > 1"], ')
    project.write("short.yaml", text)
    assert project.cli("run", "short.yaml").code == 0


def test_wrong_condition_is_found_before(project: Project) -> None:
    text = HELLO.replace("metrics: {", 'metrics: {abort_when: ["finite(score)"], ')
    done = project.cli("validate", project.write("wrong.yaml", text))
    assert (done.code, "cannot end a run" in done.err) == (2, True)
