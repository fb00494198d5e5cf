"""Following a run while the controller goes away, with a fake launcher: no real one does so on demand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from jobspec import launchers
from jobspec.cli.live import follow as following
from jobspec.cli.live.observe import EventTail
from jobspec.finding import JobspecError, fail
from jobspec.launchers import JobState, JobStatus
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch

LAUNCH = Launch("20261128-010203-ab12cd", "/x", "lab", "slurm", "x", 0.0, job_id="1")
Answer = Callable[[], JobStatus]


class FakeLauncher:
    """Answers from a list."""

    def __init__(self, *answers: JobStatus | JobspecError) -> None:
        self._answers = list(answers)

    def query(self, wanted: list[Launch], within_s: float) -> dict[Launch, JobStatus]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, JobspecError):
            raise answer
        return dict.fromkeys(wanted, answer)


GONE = fail("launch.scheduler", "`squeue` failed with exit code 1")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "FILES_S", 0.0)
    monkeypatch.setitem(following._QUERY_S, "slurm", 0.0)


def follow(monkeypatch: pytest.MonkeyPatch, run: RunPaths, *answers: JobStatus | JobspecError) -> JobStatus:
    monkeypatch.setattr(launchers, "for_launch", lambda launch: FakeLauncher(*answers))
    return following.follow(run, LAUNCH, None)


def test_controller_that_comes_back_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    done = JobStatus(JobState.COMPLETED, exit_code=0)
    answers = (JobStatus(JobState.PENDING), GONE, GONE, JobStatus(JobState.RUNNING), GONE, done)
    assert follow(monkeypatch, RunPaths(tmp_path), *answers) == done
    assert json.loads((tmp_path / "scheduler.json").read_text())["state"] == "COMPLETED"


def test_files_that_cannot_be_brought_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    """A login node that is away under a job that goes on; the verdict needs the files of its end."""
    brought = iter([False, False, True])

    def sync(launch: Launch) -> None:
        if not next(brought):
            raise fail("launch.ssh-closed", "the connection to `login` was lost")

    monkeypatch.setattr(launchers, "sync", sync)
    done = JobStatus(JobState.COMPLETED, exit_code=0)
    assert follow(monkeypatch, RunPaths(tmp_path), done) == done
    assert next(brought, None) is None


def test_controller_that_stays_away_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    monkeypatch.setattr(following, "SILENCE_S", 0.0)
    with pytest.raises(JobspecError, match="squeue"):
        follow(monkeypatch, RunPaths(tmp_path), JobStatus(JobState.RUNNING), GONE)
    assert not (tmp_path / "scheduler.json").exists()


def test_last_file_of_a_slow_file_system_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    run = RunPaths(tmp_path)
    run.attempt(1).mkdir(parents=True)
    looks = 0

    def arrive(found: RunPaths) -> dict[str, object] | None:
        nonlocal looks
        looks += 1
        return {"outcome": "ok"} if looks > 3 else None

    monkeypatch.setattr(following, "read_results", arrive)
    follow(monkeypatch, run, JobStatus(JobState.COMPLETED))
    assert looks == 4


def test_killed_job_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None) -> None:
    run = RunPaths(tmp_path)
    run.attempt(1).mkdir(parents=True)
    assert follow(monkeypatch, run, JobStatus(JobState.NODE_FAIL)).state is JobState.NODE_FAIL


def test_events_come_once_and_whole(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    run.attempt(1).mkdir(parents=True)
    file = run.attempt(1) / "events.jsonl"
    tail = EventTail(run)
    assert tail.read() == []
    file.write_text('{"phase": "a"}\n{"pha')
    assert [event["phase"] for event in tail.read()] == ["a"]
    file.write_text('{"phase": "a"}\n{"phase": "b"}\ntorn\n[1]\n')
    assert [event["phase"] for event in tail.read()] == ["b"]
    run.attempt(2).mkdir()
    (run.attempt(2) / "events.jsonl").write_text('{"phase": "c"}\n')
    assert [(event["phase"], event["attempt"]) for event in tail.read()] == [("c", 2)]
