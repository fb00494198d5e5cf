"""`cancel` and `report` say of a run what is so, also when its record is damaged or it goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from jobspec import launchers, pipeline
from jobspec.cli.live import observe
from jobspec.launchers.base import HERE, new_launch
from jobspec.plan import Plan
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch, write_launch
from jobspec.sweeps.finished import finished_points, read_points
from tests.kits.project_kit import Project


def await_true(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


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


def test_command_that_kills_the_agent_is_not_cleared(project: Project) -> None:
    killer = "version: 1\nname: k\nframework: command\nlaunch: {mode: srun}\n"
    project.write("killer.yaml", killer + "train: {command: [sh, -c, 'kill -9 $PPID; sleep 1']}\n")
    done = project.cli("run", "killer.yaml")
    assert done.code == 3, done.text
    said = "jobspec's agent was killed (137): by the command, by lack of memory, or from outside"
    assert said in done.out
    assert "not evidence" not in done.out
    summary = project.cli("report", "last", "--format", "summary").out
    assert said in summary and "not evidence" not in summary and "environment fix" not in summary


def test_cancel_by_name_ends_the_run_of_that_name_that_goes_on(project: Project) -> None:
    project.write("s.yaml", SLEEPER)
    assert project.cli("submit", "s.yaml").code == 0
    first = project.last()
    assert project.cli("render", "s.yaml").code == 0  # newer, and never started
    assert project.last() != first
    assert project.cli("cancel", "s").out == f"run {first.run_id}: cancelled\n"
    assert project.cli("cancel", "s").out == f"run {project.last().run_id}: not started\n"
    assert project.cli("submit", "s.yaml").code == 0
    second = project.last()
    assert project.cli("submit", "s.yaml", "--rerun").code == 0
    third = project.last()
    done = project.cli("cancel", "s")
    assert (done.code, done.out) == (2, "")
    assert "error[run.ambiguous]" in done.err and "2 runs of the name `s` go on" in done.err
    assert second.run_id in done.err and third.run_id in done.err and first.run_id not in done.err
    assert project.cli("cancel", second.run_id, third.run_id).code == 0


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
    run, judge = project.last(), pipeline.judge_run

    def judge_then_change(*args: Any) -> Any:
        judged = judge(*args)
        (run.attempt(1) / "results.json").unlink()
        return judged

    monkeypatch.setattr(pipeline, "judge_run", judge_then_change)
    done = project.cli("report", "last", "--json")
    assert done.code == 0
    assert json.loads((run.root / "report.json").read_text()) == json.loads(done.out)


GOES_ON = """\
version: 1
name: s
framework: command
launch: {mode: srun}
train: {command: [bash, -c, 'echo torch.OutOfMemoryError: CUDA out of memory.; sleep 300']}
sweep: {mode: one_allocation, grid: {user.size: [1]}}
"""


def test_point_that_goes_on_after_an_error_has_not_finished(project: Project) -> None:
    project.write("goes-on.yaml", GOES_ON)
    assert project.cli("submit", "goes-on.yaml").code == 0
    sweep = project.last()
    (point,) = sweep.points()
    await_true(lambda: "OutOfMemory" in "".join(path.read_text() for path in observe.log_files(point)))
    done = project.cli("report", sweep.run_id, "--json")
    assert "is RUNNING: the verdict covers its files so far" in done.err
    (record,) = read_points(sweep).points
    assert finished_points(sweep.root.parent, {0: record.key}) == {}
    assert project.cli("cancel", sweep.run_id).code == 0


def test_cluster_that_is_away_hides_no_run_of_another(project: Project) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    here = project.last()
    there = RunPaths(here.root.with_name("20261128-010203-ab12cd"))
    there.root.mkdir()
    away = Launch(there.run_id, "/x", "far", "slurm", "x", 0.0, job_id="1", login="no-such-host.invalid")
    write_launch(there, away)
    states = {row["run_id"]: row["state"] for row in project.cli("status", "--json").json}
    assert states == {here.run_id: "COMPLETED", there.run_id: "UNKNOWN"}
    done = project.cli("status")
    assert (done.code, "COMPLETED" in done.out) == (0, True)
    assert "error[launch." in done.err
    assert not there.scheduler.exists()
    assert project.cli("status", there.run_id).code == 2


def test_report_brings_the_results_that_came_late(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """`status` saw the job's end before the login node saw its last file, and wrote the end down."""
    assert project.cli("run", "hello.yaml").code == 0
    run = project.last()
    results = run.attempt(1) / "results.json"
    text = results.read_text()
    results.unlink()
    assert project.cli("report", "last").code == 3
    monkeypatch.setattr(launchers, "sync", lambda launch: results.write_text(text))
    assert project.cli("report", "last").code == 0
