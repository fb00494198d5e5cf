"""Bring models and data sets by a CPU job on the cluster, where login nodes are no place for a terabyte."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobspec import staging
from jobspec.finding import JobspecError, fail
from jobspec.launchers.probe import last_words

if TYPE_CHECKING:
    from jobspec.spec.cluster_model import ClusterProfile

POLL_S = 1.0


def bring_there(profile: ClusterProfile, item: staging.Item, mirror: Path | None, timeout_s: float) -> None:
    """`staging.bring` in a job of one node, without GPUs, followed to its end.

    Raises: JobspecError with what the job found, or when it is refused or takes too long.
    """
    try:
        import submitit
    except ModuleNotFoundError as problem:
        fix = "pip install 'jobspec-rl[cluster]'"
        raise fail("stage.no-submitit", "submitit is not installed", fix=fix) from problem
    runs = Path(profile.paths.runs).expanduser().absolute()
    folder = runs / ".stage" / f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
    slurm = profile.scheduler == "slurm"
    executor = submitit.AutoExecutor(folder=folder, cluster="slurm" if slurm else "local")
    executor.update_parameters(timeout_min=max(1, int(timeout_s // 60)), name=f"stage-{item.name}")
    if slurm:
        executor.update_parameters(nodes=1, tasks_per_node=1, **_slurm_parameters(profile))
    job = executor.submit(_bring, item, mirror)
    end = time.monotonic() + timeout_s
    while not job.done() and time.monotonic() < end:
        time.sleep(POLL_S)
    if not job.done():
        state = job.state
        job.cancel()
        what = f"job {job.job_id} did not bring `{item.name}` within {timeout_s:.0f} s"
        raise fail("stage.timeout", what, f"its state is {state}", f"see `{folder}`; the next call goes on")
    try:
        findings = job.result()
    except (submitit.core.utils.FailedJobError, submitit.core.utils.UncompletedJobError) as problem:
        why = last_words(job.stderr() or "", str(problem))
        raise fail(
            "stage.job", f"job {job.job_id} failed", why, f"see `{folder}`; the nodes need this Python"
        ) from problem
    if findings:
        raise JobspecError(*findings)


def _bring(item: staging.Item, mirror: Path | None) -> list[Any]:
    """Runs in the job. Findings travel as a value: an exception would arrive as text."""
    try:
        staging.bring(item, mirror)
    except JobspecError as problem:
        return list(problem.findings)
    return []


def _slurm_parameters(profile: ClusterProfile) -> dict[str, str]:
    slurm = profile.slurm
    named = {"slurm_partition": slurm.partition, "slurm_account": slurm.account, "slurm_qos": slurm.qos}
    return {key: value for key, value in named.items() if value}
