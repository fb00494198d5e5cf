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
from jobspec.launchers.access.here import LocalClient
from jobspec.launchers.base import JobState
from jobspec.launchers.slurm.commands import job_unknown, parse_state, refusal_fix
from jobspec.words import install_command

if TYPE_CHECKING:
    from jobspec.spec.site import ClusterProfile


WRITTEN_S = 5.0


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
    # submitit ends the function 90 s before the limit; whoever waits ends the job after `timeout_s`.
    executor.update_parameters(timeout_min=int(timeout_s // 60) + 3, name=name)
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
    """Empty when the job ends in time; else the state in which this call cancels it.

    submitit asks sacct, which says nothing where Slurm has no accounting database: the queue is asked here.
    Raises: submitit's UncompletedJobError when the job has ended and left no result.
    """
    import submitit

    on_slurm = isinstance(job, submitit.SlurmJob)
    deadline, state = time.monotonic() + timeout_s, JobState.UNKNOWN
    ended = False
    while not (_has_results(job) if on_slurm else job.done()):
        if ended:
            raise submitit.core.utils.UncompletedJobError(
                f"it has ended as {state.value}, and left no result"
            )
        if time.monotonic() > deadline:
            job.cancel()
            return state.value
        time.sleep(poll_s)
        if on_slurm:
            state = _state(job.job_id)
            ended = state.final and not _appear(job)
    return ""


def _has_results(job: Any) -> bool:
    return all(job.task(index).paths.result_pickle.exists() for index in range(job.num_tasks))


def _appear(job: Any) -> bool:
    """Whether the results come after all: a shared folder may show them later than Slurm tells the end."""
    deadline = time.monotonic() + WRITTEN_S
    while not _has_results(job) and time.monotonic() < deadline:
        time.sleep(0.2)
    return _has_results(job)


def _state(job_id: str) -> JobState:
    """The job's state in the queue: UNKNOWN when that does not answer, MISSING when it has no such job."""
    words = ["squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job_id}"]
    found = LocalClient().run(words)
    if found.code != 0:
        return JobState.MISSING if job_unknown(found.stderr) else JobState.UNKNOWN
    state, *_ = found.stdout.split() or [JobState.MISSING.value]
    return parse_state(state)


def last_words(stderr: str, message: str) -> str:
    """The line that says most about a failed job: the last of its errors, else of submitit's message.

    submitit ends its message with the paths of the logs, which the check removes.
    """
    lines = (line.strip() for line in stderr.splitlines())
    errors = [line for line in lines if line and not line.startswith("submitit ")]
    complaints = [
        line.strip() for line in message.splitlines() if line.strip() and not line.lstrip().startswith("-")
    ]
    return next((lines[-1] for lines in (errors, complaints) if lines), "the job printed nothing")
