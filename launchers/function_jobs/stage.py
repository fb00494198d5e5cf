"""Bring models and data sets by a CPU job on the cluster, where login nodes are no place for a terabyte."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobspec.finding import JobspecError, fail
from jobspec.launchers.function_jobs.submit import await_end, last_words, new_executor, submit
from jobspec.runtime.staging import shared

if TYPE_CHECKING:
    from jobspec.spec.site import ClusterProfile

POLL_S = 1.0


def bring_there(profile: ClusterProfile, item: shared.Item, mirror: Path | None, timeout_s: float) -> None:
    """Run `shared.bring` in a job of one node without GPUs, and wait for its end.

    Raises: JobspecError with what the job found, or when it is refused or takes too long.
    """
    runs = Path(profile.paths.runs).expanduser().absolute()
    folder = runs / ".stage" / f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
    name, missing = f"stage-{item.name}", "stage.no-submitit"
    executor = new_executor(profile, folder, name, timeout_s, missing=missing)
    import submitit

    job = submit(executor, "stage.refused", _bring, item, mirror)
    try:
        if state := await_end(job, timeout_s, POLL_S):
            what = f"job {job.job_id} did not bring `{item.name}` within {timeout_s:.0f} s"
            fix = f"see `{folder}`; the next call continues"
            raise fail("stage.timeout", what, f"its state is {state}", fix)
        findings = job.result()
    except (submitit.core.utils.FailedJobError, submitit.core.utils.UncompletedJobError) as problem:
        why = last_words(job.stderr() or "", str(problem))
        raise fail(
            "stage.job",
            f"job {job.job_id} failed",
            why,
            f"see `{folder}`, and make this Python available on the nodes",
        ) from problem
    if findings:
        raise JobspecError(*findings)


def _bring(item: shared.Item, mirror: Path | None) -> list[Any]:
    """Runs in the job. Findings travel as a value: an exception would arrive as text."""
    try:
        shared.bring(item, mirror)
    except JobspecError as problem:
        return list(problem.findings)
    return []
