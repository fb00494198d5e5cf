"""`cancel` and `report` say of a run what is so, also when its record is damaged or it goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from project_kit import Project

from jobspec.cli import verdicts
from jobspec.launchers.base import HERE, new_launch
from jobspec.plan import Plan
from jobspec.runs import RunPaths, write_launch

SLEEPER = "version: 1\nname: s\nframework: command\nlaunch: {mode: srun}\ntrain: {command: [sleep, '300']}\n"


def test_run_with_a_damaged_record_is_not_said_to_have_ended(project: Project) -> None:
    project.write("sleeper.yaml", SLEEPER)
    assert project.cli("submit", "sleeper.yaml").code == 0
    record = project.last().state
    text = record.read_text()
    record.write_text("")
    done = project.cli("cancel", "last")
    record.write_text(text)
    assert (done.code, done.out) == (2, "")
    assert "error[run.damaged-file]" in done.err
    assert project.cli("cancel", "last").code == 0


def test_run_that_was_only_rendered_is_said_so(project: Project) -> None:
    assert project.cli("render", "hello.yaml", "--out", "out").code == 0
    assert project.cli("cancel", "out").out == "run out: not started\n"


def test_run_whose_submission_was_killed_is_not_said_to_be_cancelled(project: Project) -> None:
    assert project.cli("render", "hello.yaml", "--out", "out").code == 0
    run = project.root / "out"
    plan = Plan("hello", "command", "local", "local", "srun")
    write_launch(RunPaths(run), new_launch(RunPaths(run), plan, "local", HERE, 1000.0))
    assert project.cli("cancel", "out").out == "run out: not started, its submission was interrupted\n"
    assert project.cli("submit", "out", "--watch").code == 0


def test_report_files_have_the_verdict_that_is_printed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run loses a file, or ends, while its report is made."""
    assert project.cli("run", "hello.yaml").code == 0
    run, judge = project.last(), verdicts.judge_run

    def judge_then_change(*args: Any) -> Any:
        judged = judge(*args)
        (run.attempt(1) / "results.json").unlink()
        return judged

    monkeypatch.setattr(verdicts, "judge_run", judge_then_change)
    done = project.cli("report", "last", "--json")
    assert done.code == 0
    assert json.loads((run.root / "report.json").read_text()) == json.loads(done.out)
