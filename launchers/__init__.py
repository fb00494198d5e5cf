"""How a rendered run is started and watched.

The only folder besides `clusters/` that knows a scheduler. Nothing here reads a spec, renders a file or
judges a result.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.finding import Finding, JobspecError
from jobspec.launchers.base import Access, JobState, JobStatus, Launcher
from jobspec.launchers.environment import read_secrets
from jobspec.runs.owner import owner
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch, write_json
from jobspec.runs.store import remember_folder

if TYPE_CHECKING:
    from jobspec.plan import Plan
    from jobspec.spec.site import ClusterProfile

__all__ = [
    "Access",
    "JobState",
    "JobStatus",
    "Launcher",
    "access_of",
    "cancel",
    "cancel_started",
    "for_launch",
    "for_plan",
    "query",
    "read_secrets",
    "record_final",
    "start",
    "sync",
]


def access_of(profile: ClusterProfile) -> Access:
    return Access(profile.access.login, profile.access.user or "", profile.access.jump or "")


def for_plan(plan: Plan, profile: ClusterProfile) -> Launcher:
    """The launcher for a plan's scheduler and mode, talking to the profile's login node."""
    return _launcher(plan.scheduler, plan.mode, access_of(profile))


def for_launch(launch: Launch) -> Launcher:
    """The launcher that can watch a run that was started before, from its record alone."""
    return _launcher(launch.launcher, launch.mode, Access(launch.login, launch.user, launch.jump))


def _launcher(scheduler: str, mode: str, access: Access) -> Launcher:
    if scheduler == "local":
        from jobspec.launchers.local import LocalLauncher

        return LocalLauncher()
    from jobspec.launchers.access import connect
    from jobspec.launchers.slurm.launcher import SlurmLauncher
    from jobspec.launchers.slurm.upstream import UpstreamLauncher

    kind = UpstreamLauncher if mode == "upstream" else SlurmLauncher
    return kind(connect(access.login, access.user, access.jump), access)


def start(run: RunPaths, plan: Plan, profile: ClusterProfile) -> Launch:
    """Start a rendered run. Raises: JobspecError when a secret is missing or the scheduler refuses."""
    if run.points():  # the sweep's own batch script asks for the tasks
        from jobspec.plan import from_json

        array = from_json(run.plan.read_text(encoding="utf-8")).slurm.array
        plan = replace(plan, slurm=replace(plan.slurm, array=array))
    secrets = read_secrets(plan.secrets, os.environ)
    if run.standard:
        remember_folder(run.root.parent.parent, os.environ)
    return for_plan(plan, profile).submit(run, plan, secrets)


def query(launches: Iterable[Launch], unanswered: list[Finding] | None = None) -> dict[Launch, JobStatus]:
    """The state of each launch, by one scheduler call for each cluster and login.

    Raises: JobspecError when a scheduler does not answer; `unanswered` takes its findings instead.
    """
    groups: dict[tuple[str, Access], list[Launch]] = {}
    states: dict[Launch, JobStatus] = {}
    for launch in launches:
        stranger = owner(Path(launch.root)) if launch.login != "here" else ""
        if stranger:  # no host that a record of somebody else names is asked
            states[launch] = JobStatus(JobState.UNKNOWN, f"a remote run of {stranger}, who can tell")
            continue
        groups.setdefault((launch.launcher, Access(launch.login, launch.user, launch.jump)), []).append(
            launch
        )
    for members in groups.values():
        try:
            states.update(for_launch(members[0]).query(members))
        except JobspecError as problem:
            if unanswered is None:
                raise
            unanswered += problem.findings
            away = JobStatus(JobState.UNKNOWN, problem.findings[0].what)
            states.update(dict.fromkeys(members, away))
    return states


def cancel(launches: Iterable[Launch]) -> None:
    for launch in launches:
        for_launch(launch).cancel([launch])


def cancel_started() -> None:
    """Cancel what this process has started on this machine; jobs of a scheduler go on."""
    from jobspec.launchers import local

    local.cancel_started()


def record_final(run: RunPaths, status: JobStatus) -> None:
    """Write `scheduler.json` once the job's state is final, for the run and each point of a sweep."""
    if not status.state.final:
        return
    write_json(run.scheduler, status.to_json())
    for point in run.points():
        task = status.tasks.get(int(point.run_id))
        if not status.tasks and point.attempts() and not point.exit_file.is_file():
            task = status  # in one allocation: the point that ran when the whole job was ended
        if task is not None:
            write_json(point.scheduler, task.to_json())


def sync(launch: Launch) -> None:
    """Copy what a run on a remote cluster has written so far to this machine; a local run needs nothing.

    Nobody connects to the host that a stranger's record names.
    """
    if launch.login == "here" or not launch.submitted or owner(Path(launch.root)):
        return
    from jobspec.launchers.access import connect

    connect(launch.login, launch.user, launch.jump).download(launch.run_dir, Path(launch.root))
