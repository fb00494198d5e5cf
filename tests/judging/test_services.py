"""The verdict's lines about services: a helper that dies is not silently a Pass."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobspec.evidence.read import read_evidence
from jobspec.judging.judge import judge
from jobspec.plan import Plan, ReadyPlan, ServicePlan
from jobspec.verdict import Result, Status, Verdict
from tests.kits.verdict_kit import PHASES, PLAN, T0, RunFolder, StandInFramework, learning_rows

JUDGE = ServicePlan("judge", ("serve",), ready=ReadyPlan("http", "/health"))
PLANNED = replace(PLAN, services=(JUDGE,))
LOG = "attempts/1/logs/n1/service-judge.log"
NAME = "Service judge"


def row(state: str = "stopped", **more: Any) -> dict[str, Any]:
    return {
        "name": "judge",
        "node": "n1",
        "port": 20001,
        "log": "logs/n1/service-judge.log",
        "state": state,
        "ready_s": None if state == "failed" else 3.0,
        "start": T0,
        "end": T0 + 9,
        "exit_code": 143,
        "signal": 15,
        **more,
    }


def made(
    root: Path, plan: Plan = PLANNED, log: str = "serves\n", outcome: str = "ok", **results: Any
) -> RunFolder:
    """A run of ours that did all its work, whose service ended as `services` of its results say."""
    run = RunFolder(root, plan)
    for phase in PHASES:
        if phase == "driver":
            run.phase("services")
        run.phase(phase, outcome="blocked" if phase == "driver" and outcome != "ok" else "ok")
    run.log("done\n")
    run.log(log, "service-judge.log")
    run.metrics(learning_rows())
    run.artifacts({"notes.txt": "abc"})
    run.write()
    run.results(outcome, 0 if outcome == "ok" else 3, **{"services": [row()], **results})
    return run


def verdict(run: RunFolder) -> Verdict:
    return judge(read_evidence(run.root), StandInFramework())


def status(found: Verdict, name: str = NAME) -> tuple[Status, str, bool]:
    item = found.deliverable(name)
    assert item is not None
    return item.status, item.reason, item.required


def test_service_that_lived_to_the_end_passes(tmp_path: Path) -> None:
    found = verdict(made(tmp_path))
    reason = "ready on n1 after 3.0 s (GET /health answered 200), and alive until the run ended it"
    assert found.result is Result.PASS
    assert status(found) == (Status.PASS, reason, True)
    item = found.deliverable(NAME)
    assert item is not None and item.evidence[0].file == LOG


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (
            [row("died", exit_code=0)],
            "n1: ready after 3.0 s, and ended by itself with 0 while the run needed it",
        ),
        ([row("ready", exit_code=None)], "n1: ready after 3.0 s, and nothing says how it ended"),
        ([row("failed")], "n1: never ready"),
        ([row("starting")], "n1: it was being started when the run ended"),
        ([], "nothing says that it was started on all its nodes"),
    ],
)
def test_run_without_proof_of_its_service_does_not_pass(
    tmp_path: Path, rows: list[dict[str, Any]], reason: str
) -> None:
    """Though every command exited with 0, and results and events call the run good."""
    found = verdict(made(tmp_path, services=rows))
    assert found.result is Result.BLOCKED
    assert status(found) == (Status.BLOCKED, reason, True)
    assert found.first_cause is not None and found.first_cause.text == reason


def test_every_node_of_a_service_counts(tmp_path: Path) -> None:
    plan = replace(PLANNED, nodes=2, services=(replace(JUDGE, nodes=(0, 1)),))
    found = verdict(made(tmp_path, plan))
    assert status(found)[:2] == (Status.BLOCKED, "nothing says that it was started on all its nodes")


def test_service_that_is_not_required_is_a_limitation(tmp_path: Path) -> None:
    plan = replace(PLANNED, services=(replace(JUDGE, required=False),))
    found = verdict(made(tmp_path, plan, services=[row("died", exit_code=9)]))
    reason = "n1: ready after 3.0 s, and ended by itself with 9 while the run needed it"
    assert found.result is Result.PASS
    assert status(found) == (Status.SKIPPED, reason, False)
    assert f"service `judge` was not there all the time: {reason}" in found.limitations


def dead(run: RunFolder, why: str, phase: str = "driver") -> dict[str, Any]:
    finding = {
        "rule": "service.ended",
        "severity": "error",
        "what": "service `judge` exited with 9 while the run needed it",
        "why": why,
        "fix": "read the end of its log",
        "file": "logs/n1/service-judge.log",
        "node": "n1",
    }
    run.event(phase, "finding", node="n1", finding=finding)
    run.write()
    return finding


@pytest.mark.parametrize("phase", ["services", "driver"])
def test_death_of_a_service_is_the_cause(tmp_path: Path, phase: str) -> None:
    log = "loading\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    run = made(tmp_path, log=log, outcome="blocked", commands=[], services=[row("died", exit_code=9)])
    run.results(
        "blocked", 3, commands=[], services=[row("died", exit_code=9)], findings=[dead(run, log, phase)]
    )
    found = verdict(run)
    cause = found.first_cause
    assert found.result is Result.BLOCKED and cause is not None
    assert (cause.kind, cause.verdict, cause.node) == ("service.ended", Result.BLOCKED, "n1")
    assert (cause.file, cause.line) == (LOG, 2)
    assert "torch.OutOfMemoryError" in cause.why
    assert "GPU memory" in cause.why  # what triage calls it


@pytest.mark.parametrize(
    ("died", "result", "kind"),
    [(8.0, Result.BLOCKED, "service.ended"), (10.0, Result.FAIL, "exception")],
    ids=["before", "after"],
)
def test_what_ended_first_is_the_cause(tmp_path: Path, died: float, result: Result, kind: str) -> None:
    """The driver that lost its service fails at once, on the same node, and its log looks like the cause."""
    rows = [row("died", exit_code=9, end=T0 + died)]
    run = made(tmp_path, outcome="failed", services=rows)
    finding = dead(run, "serves")
    command = {"name": "train", "exit_code": 1, "start": T0, "end": T0 + 9, "log": "logs/n1/train.log"}
    run.log('Traceback (most recent call last):\n  File "x.py", line 1\nValueError: no reward came\n')
    run.results("failed", 1, commands=[command], services=rows, findings=[finding])
    found = verdict(run)
    assert found.first_cause is not None
    assert (found.result, found.first_cause.kind) == (result, kind)


def test_log_of_a_sandbox_explains_no_failure_of_the_driver(tmp_path: Path) -> None:
    """It runs what a model writes: its log is full of errors that it bears."""
    log = "Traceback (most recent call last):\n  File x.py\nModuleNotFoundError: No module named 'nunpy'\n"
    run = made(tmp_path, log=log, outcome="failed", services=[row()])
    command = {"name": "train", "exit_code": 1, "start": T0, "end": T0 + 9, "log": "logs/n1/train.log"}
    run.log("ValueError: the reward is not a number\n")
    run.results("failed", 1, commands=[command], services=[row()])
    cause = verdict(run).first_cause
    assert cause is not None and cause.file == "attempts/1/logs/n1/train.log"


def test_last_lines_of_a_service_in_the_job_s_log_are_no_cause(tmp_path: Path) -> None:
    """The job's log repeats the finding, with the lines in it; the driver failed for another reason."""
    said = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    plan = replace(PLANNED, services=(replace(JUDGE, required=False),))
    run = made(tmp_path, plan, log=said + "\n", outcome="failed")
    finding = {**dead(run, said), "severity": "warning"}
    (tmp_path / "job-1.log").write_text(f"warning[service.ended]\n  why:  {said}\n")
    command = {"name": "train", "exit_code": 1, "start": T0, "end": T0 + 9, "log": "logs/n1/train.log"}
    run.log("bash: line 1: python4: command not found\n")
    run.events[-1]["finding"] = finding
    run.write()
    run.results("failed", 1, commands=[command], services=[row("died")], findings=[finding])
    cause = verdict(run).first_cause
    assert cause is not None and cause.file == "attempts/1/logs/n1/train.log"


def test_service_that_was_not_reached_is_skipped(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, PLANNED)
    run.phase("preflight", "blocked")
    run.finding("preflight", "preflight.gpus", "the node has 0 GPUs, the plan needs 8")
    run.write()
    run.results("blocked", 3, commands=[])
    assert status(verdict(run)) == (Status.SKIPPED, "an earlier phase stopped the run", True)


def test_port_that_was_taken_is_told(tmp_path: Path) -> None:
    """Preflight warns and goes on without one that is not required: no row of it is recorded."""
    plan = replace(PLANNED, services=(replace(JUDGE, required=False),))
    what = "port 8000 of service `judge` is in use on this node"
    finding = {"rule": "service.port-taken", "severity": "warning", "what": what, "node": "n1"}
    found = verdict(made(tmp_path, plan, services=[], findings=[finding]))
    assert found.result is Result.PASS
    assert status(found) == (Status.SKIPPED, f"n1: {what}", False)


def test_results_of_an_older_runtime_are_read(tmp_path: Path) -> None:
    run = made(tmp_path, PLAN)
    data = json.loads((run.folder / "results.json").read_text())
    del data["services"]
    (run.folder / "results.json").write_text(json.dumps(data))
    assert verdict(run).deliverable(NAME) is None
