"""Python functions as jobs: on a cluster by Slurm, on this machine as child processes; by submitit."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobspec.finding import fail
from jobspec.launchers.slurm.commands import refusal_fix
from jobspec.words import install_command

if TYPE_CHECKING:
    from jobspec.spec.site import ClusterProfile


def new_executor(
    profile: ClusterProfile, folder: Path, name: str, timeout_s: float, *, missing: str, nodes: int = 1
) -> Any:
    """submitit's executor for one task on each of `nodes`. `missing` is the rule when submitit is not there.

    Raises: JobspecError by that rule.
    """
    try:
        import submitit
    except ModuleNotFoundError as problem:
        what = "submitit, which this command needs, is not installed here"
        fix = f"run `{install_command('cluster')}`"
        raise fail(missing, what, "the login node's installation is light", fix) from problem
    slurm = profile.scheduler == "slurm"
    executor = submitit.AutoExecutor(folder=folder, cluster="slurm" if slurm else "local")
    executor.update_parameters(timeout_min=max(1, int(timeout_s // 60)), name=name)
    if slurm:
        site = profile.slurm
        named = {"slurm_partition": site.partition, "slurm_account": site.account, "slurm_qos": site.qos}
        options: dict[str, Any] = {key: value for key, value in named.items() if value}
        others = {"reservation": site.reservation, "constraint": site.constraint, "exclude": site.exclude}
        options["slurm_additional_parameters"] = {key: value for key, value in others.items() if value}
        executor.update_parameters(nodes=nodes, tasks_per_node=1, **options)
    return executor


def submit(executor: Any, rule: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """The job that runs `function` on each node.

    submitit both prints and raises the complaint of sbatch: here the finding alone states it.
    Raises: JobspecError by `rule` when the job is refused, or its folder cannot be written.
    """
    import submitit

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            job = executor.submit(function, *arguments)
    except (submitit.core.utils.FailedJobError, OSError) as problem:
        text = str(problem) or said.getvalue().strip()
        fix = refusal_fix(text, "check `slurm` and `paths.runs` in the site profile")
        raise fail(rule, "the job was refused", text, fix) from problem
    sys.stderr.write(said.getvalue())
    return job


def await_end(job: Any, timeout_s: float, poll_s: float) -> str:
    """Empty when the job ends in time; else the state in which this call cancels it."""
    deadline = time.monotonic() + timeout_s
    while not job.done() and time.monotonic() < deadline:
        time.sleep(poll_s)
    if job.done():
        return ""
    state = str(job.state) or "UNKNOWN"
    job.cancel()
    return state


def last_words(stderr: str, message: str) -> str:
    """The line that says most about a failed job: the last of its errors, else of submitit's message.

    submitit ends its message with the paths of the logs, which the check removes.
    """
    errors = [line.strip() for line in stderr.splitlines() if line.strip()]
    complaints = [
        line.strip() for line in message.splitlines() if line.strip() and not line.lstrip().startswith("-")
    ]
    return next((lines[-1] for lines in (errors, complaints) if lines), "the job printed nothing")
