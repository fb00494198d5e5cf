"""One run folder with damaged records beside a good one: it is told of by name, and harms no other run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jobspec.report import FORMATS
from jobspec.runs.paths import RunPaths
from tests.kits.project_kit import Project

BAD = "20260101-000000-abcdef"
LAUNCH: Mapping[str, Any] = {
    "version": 1, "run_id": BAD, "run_dir": "x", "cluster": "c", "launcher": "local", "job_name": "n",
    "intent_time": 1.0, "job_id": "1", "mode": "srun",
}  # fmt: skip
DEEP = '{"version": 1, "a":' + "[" * 20_000 + "]" * 20_000 + "}"


def odd(**values: object) -> str:
    return json.dumps({**LAUNCH, **values})


BAD_LAUNCHES = {
    "mode": odd(mode="zzz"),
    "launcher": odd(launcher="zzz"),
    "job-id": odd(job_id="abc"),
    "job-id-long": odd(job_id="9" * 5000),
    "job-id-digits": odd(job_id="²"),
    "nul": odd(login="a\0b"),
    "nan": odd(intent_time=float("nan")),
    "infinite": odd(submit_time=float("-inf")),
    "huge": odd(submit_time=-(10**400)),
    "deep": DEEP,
    "deep-value": odd().replace('"srun"', "[" * 900 + "]" * 900),
    "list": "[]",
    "no-utf-8": "\udcff",
}
BAD_SCHEDULERS = {
    "deep": DEEP,
    "state": '{"state": ["FAILED"]}',
    "restarts": '{"state": "FAILED", "restarts": 1e300}',
    "exit-code": '{"state": "FAILED", "exit_code": "x"}',
    "task": '{"state": "FAILED", "tasks": {"1": {"state": 1}}}',
    "task-number": json.dumps({"state": "FAILED", "tasks": {"1" * 5000: {"state": "FAILED"}}}),
}


@pytest.mark.parametrize("number", ["1e15", "-1e15", "1e300", "NaN", "Infinity", "-Infinity"])
def test_times_that_no_calendar_has_are_unknown(project: Project, number: str) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    run = project.last()
    events = run.attempt(1) / "events.jsonl"
    rows = [json.loads(line) for line in events.read_text().splitlines()]
    lines = [json.dumps({**row, "t": 0, "seconds": 1}) for row in rows]
    changed = [
        line.replace('"t": 0', f'"t": {number}').replace('"seconds": 1', f'"seconds": {number}')
        for line in lines
    ]
    events.write_text("\n".join(changed) + "\n")
    results = run.attempt(1) / "results.json"
    results.write_text(re.sub(r'("(?:start|end)"): [\d.e+-]+', rf"\1: {number}", results.read_text()))
    (run.root / "report.json").unlink()
    done = project.cli("status")
    assert done.code == 0 and "no report" not in done.out, done.text
    for fmt in FORMATS:
        assert project.cli("report", "last", "--format", fmt).code in (0, 1, 3, 4), fmt
    assert "1970" not in (run.root / "report.html").read_text()


def bad_run(project: Project, launch: str, files: Mapping[str, str] = {}) -> RunPaths:
    """A good run that has ended, and a bad run beside it, which this returns."""
    assert project.cli("run", "hello.yaml").code == 0
    root = project.root / "runs/bad" / BAD
    root.mkdir(parents=True)
    (root / "plan.json").write_text(project.last().plan.read_text())
    for name, text in {"launch.json": launch, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, errors="surrogateescape")
    return RunPaths(root)


def told_of_alone(project: Project, file: Path) -> None:
    """`status` lists both runs; each command that asks for the bad one names its file."""
    good = next(run for run in project.runs.list() if run.run_id != BAD)
    listed = project.cli("status")
    assert listed.code == 0
    assert "error[run.damaged-file]" in listed.err
    assert file.name in listed.err
    rows = {line.split()[0]: line for line in listed.out.splitlines()}
    assert "COMPLETED" in rows[good.run_id]
    assert "damaged" in rows[BAD]
    assert project.cli("report", good.run_id).code == 0
    asked = project.cli("status", BAD)
    assert (asked.code, "error[run.damaged-file]" in asked.err) == (2, True)


@pytest.mark.parametrize("name", BAD_LAUNCHES)
def test_launch(project: Project, name: str) -> None:
    bad = bad_run(project, BAD_LAUNCHES[name])
    told_of_alone(project, bad.state)
    for argv in (["report", BAD], ["logs", BAD], ["cancel", BAD]):
        done = project.cli(*argv)
        assert done.code == 2, argv
        assert "error[run.damaged-file]" in done.err


@pytest.mark.parametrize("name", BAD_SCHEDULERS)
def test_scheduler_state(project: Project, name: str) -> None:
    bad = bad_run(project, odd(), {"scheduler.json": BAD_SCHEDULERS[name]})
    told_of_alone(project, bad.scheduler)
    assert project.cli("report", BAD).code in (2, 3, 4)


@pytest.mark.parametrize("text", [DEEP, '{"exit_code": "x"}', "[]"])
def test_results_that_a_launcher_reads(project: Project, text: str) -> None:
    told_of_alone(project, bad_run(project, odd(), {"attempts/1/results.json": text}).root / "results.json")


def test_plan_that_is_too_deep(project: Project) -> None:
    bad_run(project, odd(), {"plan.json": DEEP, "attempts/²/x": ""})
    assert project.cli("status").code == 0
    assert project.cli("report", BAD).code == 4
    assert project.cli("submit", project.root / "runs/bad" / BAD).code == 2


def test_attempts_that_are_a_link_to_themselves(project: Project) -> None:
    bad = bad_run(project, odd())
    (bad.root / "attempts").symlink_to("attempts")
    (bad.root / "job-1.log").symlink_to("job-1.log")
    told_of_alone(project, bad.root / "attempts")
