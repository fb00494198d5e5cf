"""Points of a sweep on a screen while they run."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from jobspec.cli.live import screen
from jobspec.cli.live.points import PointState, PointWatch
from jobspec.launchers import JobState, JobStatus
from jobspec.runs.paths import RunPaths

RUNNING = JobStatus(JobState.RUNNING)


def sweep(folder: Path) -> RunPaths:
    run = RunPaths(folder / "20261129-163945-31fbe5")
    for index in range(3):
        (run.root / "points" / str(index)).mkdir(parents=True)
    points = [{"index": index, "sets": {"train.seed": index}} for index in range(3)]
    points.append({"index": 3, "sets": {"train.seed": 9}, "finished": "../20261128-163945-31fbe5/points/7"})
    run.points_index.write_text(json.dumps({"points": points}))
    return run


def test_points_are_told_apart_as_they_go(tmp_path: Path) -> None:
    run = sweep(tmp_path)
    watch = PointWatch(run)
    assert [point.outcome for point in watch.read()] == ["waiting"] * 3 + ["of run 20261128-163945-31fbe5"]
    folders = [point.attempt(1) for point in run.points()]
    for folder in folders[:2]:
        (folder / "metrics").mkdir(parents=True)
    (folders[0] / "results.json").write_text('{"outcome": "failed", "exit_code": 1}')
    (folders[1] / "metrics" / "metrics.jsonl").write_text('{"step": 4, "reward": 0.5}\n')
    first, second, third, _ = watch.read()
    assert (first.outcome, second.outcome, third.outcome) == ("failed", "running", "waiting")
    assert (second.label, second.progress.step, second.progress.value) == ("train.seed=1", 4, 0.5)
    (folders[0] / "results.json").write_text('{"outcome": "ok", "exit_code": 0}')
    assert watch.read()[0].outcome == "failed"  # it has ended: nothing is read again


def test_a_point_that_is_started_again_runs(tmp_path: Path) -> None:
    run = sweep(tmp_path)
    watch = PointWatch(run)
    point = run.points()[0]
    point.attempt(1).mkdir(parents=True)
    (point.attempt(1) / "results.json").write_text('{"outcome": "cancelled", "exit_code": 143}')
    assert watch.read()[0].outcome == "cancelled"
    point.attempt(2).mkdir()
    assert (watch.read()[0].outcome, PointWatch(run).read()[0].outcome) == ("running", "running")
    (point.attempt(2) / "results.json").write_text('{"outcome": "ok", "exit_code": 0}')
    assert watch.read()[0].outcome == "ok"


def test_a_single_run_has_no_points(tmp_path: Path) -> None:
    assert PointWatch(RunPaths(tmp_path)).read() == ()


def test_without_a_terminal_a_point_has_a_line_when_it_changes(capsys: pytest.CaptureFixture[str]) -> None:
    plain = screen.PlainScreen()
    for outcome in ("waiting", "running", "running", "ok"):
        plain.show(RUNNING, (), screen.Progress(), (PointState(0, "seed=1", outcome),))
    lines = [line.partition("] ")[2].split() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line[0] == "point"] == [
        ["point", "0", "running", "seed=1"],
        ["point", "0", "ok", "seed=1"],
    ]


def test_of_many_points_those_that_run_stay_on_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    live = screen.LiveScreen("a sweep")
    live.close()
    points = [PointState(at, f"seed={at}", "running" if at == 90 else "ok") for at in range(100)]
    live._points = points
    out = Console(file=io.StringIO(), width=100)
    out.print(live._draw())
    text = out.file.getvalue()  # type: ignore[attr-defined]
    assert "90: seed=90" in text
    assert text.count("seed=") == screen.MAX_POINTS
