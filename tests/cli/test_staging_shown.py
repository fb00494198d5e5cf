"""How far staging is, in `status` and on both screens, from events as the runtime writes them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from jobspec import launchers
from jobspec.cli import run_table
from jobspec.cli.commands import status
from jobspec.cli.commands.schema import output_schema
from jobspec.cli.live import observe, screen
from jobspec.cli.live.metrics import NO_PROGRESS
from jobspec.launchers import JobState, JobStatus
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch, write_launch

# The first rows of a run on two nodes; n2 shares its storage's bytes with n1.
STAGING: list[dict[str, Any]] = [
    {"v": 1, "t": 1.0, "phase": "preflight", "event": "end", "node": "", "outcome": "ok", "seconds": 0.1},
    {"v": 1, "t": 1.1, "phase": "stage", "event": "start", "node": ""},
    {"v": 1, "t": 1.1, "phase": "helpers", "event": "start", "node": ""},
    {"v": 1, "t": 3.1, "phase": "stage", "event": "progress", "node": "n1", "data": {
        "what": "progress", "name": "model", "bytes": 600_000_000, "total": 1_000_000_000,
        "rate": 300_000_000, "file": "model-00001.safetensors",
        "source": 300_000_000, "peers": 300_000_000, "eta_s": 1.3}},
    {"v": 1, "t": 3.2, "phase": "helpers", "event": "end", "node": "", "outcome": "cached", "seconds": 2.1},
    {"v": 1, "t": 3.2, "phase": "stage", "event": "progress", "node": "n2", "data": {
        "what": "progress", "name": "model", "bytes": 250_000_000, "total": 1_000_000_000,
        "rate": 125_000_000, "file": "model-00001.safetensors",
        "source": 150_000_000, "peers": 100_000_000, "eta_s": 6.0}},
]  # fmt: skip
DONE: list[dict[str, Any]] = [
    {"v": 1, "t": 9.0, "phase": "stage", "event": "end", "node": "", "outcome": "ok", "seconds": 7.9}
]
SHOWN = "model 25% of 1 GB, 125 MB/s, 6 s left, slowest of 2 nodes: n2"
RUNNING = JobStatus(JobState.RUNNING, nodes="n[1-2]")


def write(run: RunPaths, rows: Iterable[dict[str, Any]], attempt: int = 1) -> None:
    folder = run.attempt(attempt)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "events.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    """A run that the scheduler calls running."""
    made = RunPaths(tmp_path / "big" / "20261128-010203-ab12cd")
    made.root.mkdir(parents=True)
    write_launch(made, Launch(made.root.name, str(made.root), "lab", "slurm", "x", 1.0, job_id="7"))
    monkeypatch.setattr(launchers, "query", lambda wanted, unanswered: dict.fromkeys(wanted, RUNNING))
    return made


def test_status_shows_each_node_while_the_phase_is_on(run: RunPaths) -> None:
    write(run, STAGING)
    (view,) = observe.observe([run])
    assert view.stage is not None
    assert run_table.row(status.as_json(view), view.stage.text())[-1] == f"staging: {SHOWN}"
    rows = [(row[1], row[-1]) for row in status._nodes(view)]
    assert rows == [
        ("node n1", "model 60% of 1 GB, 300 MB/s, 1 s left; 300 MB from storage, 300 MB from nodes"),
        ("node n2", "model 25% of 1 GB, 125 MB/s, 6 s left; 150 MB from storage, 100 MB from nodes"),
    ]
    told = status.as_json(view)["stage"]
    assert (told["share"], [node["bytes"] for node in told["nodes"]]) == (0.25, [600_000_000, 250_000_000])
    jsonschema.validate([json.loads(json.dumps(status.as_json(view)))], json.loads(output_schema("status")))


def test_status_says_nothing_of_staging_after_it(run: RunPaths) -> None:
    write(run, [*STAGING, *DONE])
    (view,) = observe.observe([run])
    assert view.stage is None and status.as_json(view)["stage"] is None
    assert run_table.row(status.as_json(view))[-1] == "" and not list(status._nodes(view))


def test_run_that_trains_has_staged(run: RunPaths) -> None:
    """Its events, which are many by then, are not read, so one that says otherwise is not seen."""
    write(run, STAGING)
    metrics = run.attempt(1) / "metrics"
    metrics.mkdir()
    (metrics / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5}\n')
    (view,) = observe.observe([run])
    assert (view.progress.step, view.stage) == (1, None)


def test_only_the_newest_attempt_counts(run: RunPaths) -> None:
    write(run, STAGING)  # killed in the middle of it
    write(run, STAGING[:1], attempt=2)
    assert observe.staging(run) is None


def test_run_without_events_stages_nothing(run: RunPaths) -> None:
    assert observe.staging(run) is None


def drawn(live: screen.LiveScreen) -> str:
    console = Console(file=io.StringIO(), width=140)
    console.print(live._draw())
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_live_screen_has_a_bar_until_the_phase_ends() -> None:
    live = screen.LiveScreen("big")
    try:
        live.show(RUNNING, STAGING, NO_PROGRESS)
        line = next(line for line in drawn(live).splitlines() if line.strip().startswith("stage"))
        assert "━" in line and SHOWN in line
        live.show(RUNNING, DONE, NO_PROGRESS)
        assert "model" not in drawn(live) and "━" not in drawn(live)
    finally:
        live.close()


def test_lines_say_it_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [1000.0]
    monkeypatch.setattr(screen.time, "monotonic", lambda: now[0])
    plain = screen.PlainScreen(started=now[0])
    for _ in range(3):
        plain.show(RUNNING, STAGING, NO_PROGRESS)
        now[0] += screen.PLAIN_STAGE_S / 2
    said = [line for line in capsys.readouterr().out.splitlines() if SHOWN in line]
    assert len(said) == 2 and said[0].split("] ")[1].startswith("stage")
