"""Bring models, data sets and images by a CPU job, where login nodes are no place for a terabyte."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobspec.finding import JobspecError, fail
from jobspec.launchers.function_jobs.submit import await_end, last_words, new_executor, submit
from jobspec.planning.image_stage import ImageItem, bring_image
from jobspec.runtime.staging import shared

if TYPE_CHECKING:
    from jobspec.runtime.staging.image_import import Brought
    from jobspec.spec.site import ClusterProfile

POLL_S = 1.0


def bring_there(profile: ClusterProfile, item: shared.Item, mirror: Path | None, timeout_s: float) -> None:
    """Run `shared.bring` in a job of one node without GPUs, and wait for its end.

    Raises: JobspecError with what the job found, or when it is refused or takes too long.
    """
    _in_job(profile, item.name, timeout_s, shared.bring, item, mirror)


def bring_image_there(profile: ClusterProfile, item: ImageItem, timeout_s: float) -> Brought:
    """`bring_image` in such a job. Raises: as `bring_there`."""
    brought: Brought = _in_job(profile, "image", timeout_s, bring_image, item, timeout_s, _tell)
    return brought


def _in_job(
    profile: ClusterProfile, name: str, timeout_s: float, bring: Callable[..., Any], *arguments: Any
) -> Any:
    runs = Path(profile.paths.runs).expanduser().absolute()
    folder = runs / ".stage" / f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
    executor = new_executor(profile, folder, f"stage-{name}", timeout_s, missing="stage.no-submitit")
    import submitit

    job = submit(executor, "stage.refused", _found, bring, *arguments)
    try:
        if state := await_end(job, timeout_s, POLL_S):
            what = f"job {job.job_id} did not bring `{name}` within {timeout_s:.0f} s"
            fix = f"see `{folder}`; the next call continues"
            raise fail("stage.timeout", what, f"its state is {state}", fix)
        brought, findings = job.result()
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
    return brought


def _found(bring: Callable[..., Any], *arguments: Any) -> tuple[Any, list[Any]]:
    """Runs in the job. Findings travel as a value: an exception would arrive as text."""
    try:
        return bring(*arguments), []
    except JobspecError as problem:
        return None, list(problem.findings)


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")  # in the job's log
    sys.stdout.flush()
