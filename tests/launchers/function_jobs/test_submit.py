"""The end of a function job is seen in the queue and in its result, since sacct may say nothing."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import submitit

from jobspec.launchers.function_jobs import submit
from jobspec.launchers.function_jobs.submit import await_end, last_words


def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, squeue: str) -> submitit.SlurmJob:
    """Job 7 of a Slurm whose squeue is this line of bash, and which has no sacct."""
    for name, line in {"squeue": squeue, "scancel": f"touch {tmp_path}/cancelled", "sacct": "exit 1"}.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(submit, "WRITTEN_S", 0.3)
    (tmp_path / "jobs").mkdir()
    return submitit.SlurmJob(tmp_path / "jobs", "7")


@pytest.mark.parametrize(
    ("squeue", "told"),
    [
        ("echo FAILED", "FAILED"),
        ("echo slurm_load_jobs error: Invalid job id specified >&2; exit 1", "MISSING"),
    ],
)
def test_job_that_left_no_result_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, squeue: str, told: str
) -> None:
    with pytest.raises(submitit.core.utils.UncompletedJobError, match=f"ended as {told}"):
        await_end(job(tmp_path, monkeypatch, squeue), 60, 0.05)


@pytest.mark.parametrize("state", ["PENDING", "REQUEUE_HOLD"])
def test_job_that_takes_too_long_is_cancelled_and_its_state_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    assert await_end(job(tmp_path, monkeypatch, f"echo {state}"), 0.3, 0.05) == state
    assert (tmp_path / "cancelled").exists()


def test_result_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = job(tmp_path, monkeypatch, "exit 1")
    waiting.paths.result_pickle.write_bytes(pickle.dumps(("success", 1)))
    assert await_end(waiting, 60, 0.05) == ""


def test_words_of_submitit_are_not_the_jobs_last() -> None:
    stderr = "srun: error: no gres\nsubmitit WARNING (2026-11-29 21:10:29,139) - Bypassing signal SIGCONT\n"
    assert last_words(stderr, "x") == "srun: error: no gres"
