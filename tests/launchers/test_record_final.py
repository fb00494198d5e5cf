"""The final state of a run is written down once, with all of its points."""

from __future__ import annotations

import json
from pathlib import Path

from jobspec.launchers import JobState, JobStatus, record_final
from jobspec.runs.paths import RunPaths

DONE = JobStatus(
    JobState.FAILED, tasks={0: JobStatus(JobState.COMPLETED, exit_code=0), 1: JobStatus(JobState.FAILED)}
)


def test_sweep_of_which_a_point_cannot_be_written_is_asked_about_again(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    for number in range(2):
        (run.points_dir / str(number)).mkdir(parents=True)
    first, second = run.points()
    second.scheduler.mkdir()  # nobody can replace it, as on a full disk
    record_final(run, DONE)
    assert not run.scheduler.exists()
    second.scheduler.rmdir()
    record_final(run, DONE)
    states = [json.loads(folder.scheduler.read_text())["state"] for folder in (run, first, second)]
    assert states == ["FAILED", "COMPLETED", "FAILED"]
