"""How a rendered run is started and watched.

The only folder besides `clusters/` that knows a scheduler. Nothing here reads a spec, renders a file or
judges a result.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.finding import Finding, JobspecError, error, is_allowed
from jobspec.launchers.base import Access, JobState, JobStatus, Launcher
from jobspec.launchers.environment import LOCAL, read_secrets
from jobspec.launchers.file_lock import busy
from jobspec.runs.owner import owner
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch, read_launch, read_results, write_json
from jobspec.runs.store import remember_folder, state_folder

if TYPE_CHECKING:
    from jobspec.launchers.slurm.forecast import Forecast
    from jobspec.launchers.slurm.here import Allocation
    from jobspec.plan import Plan
    from jobspec.spec.find_site import LoadedCluster
    from jobspec.spec.site import ClusterProfile

# How long a queue's answer is waited for where it can be missed: squeue waits 20 s for a dead controller.
BRIEF_S = 5.0  # where the runs' results are there, and it can add little
PATIENT_S = 20.0
MAX_UNSETTLED = 100  # newest runs of a name that are looked at; older ones are no mistake of today

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
    "foresee",
    "query",
    "read_secrets",
    "record_final",
    "refuse_unsettled",
    "start",
    "sync",
    "with_far_side",
]


def access_of(profile: ClusterProfile) -> Access:
    of = profile.access
    return Access(of.login, of.user or "", of.jump or "", of.master or "")


def access_of_launch(launch: Launch) -> Access:
    return Access(launch.login, launch.user, launch.jump, launch.master)


def for_plan(plan: Plan, profile: ClusterProfile) -> Launcher:
    """The launcher for a plan's scheduler and mode, talking to the profile's login node."""
    return _launcher(plan.scheduler, plan.mode, access_of(profile))


def for_launch(launch: Launch) -> Launcher:
    """The launcher that can watch a run that was started before, from its record alone."""
    return _launcher(launch.launcher, launch.mode, access_of_launch(launch))


def with_far_side(site: LoadedCluster) -> LoadedCluster:
    """The site with its login node to ask about checkouts, where its disks are not this machine's."""
    access = access_of(site.profile)
    if site.profile.scheduler != "slurm" or access.login == "here":
        return site
    from jobspec.launchers.access import connect
    from jobspec.launchers.access.far_side import FarSide

    return replace(site, elsewhere=FarSide(connect(access)))


def _launcher(scheduler: str, mode: str, access: Access) -> Launcher:
    if scheduler == "local":
        from jobspec.launchers.local import LocalLauncher

        return LocalLauncher()
    from jobspec.launchers.access import connect
    from jobspec.launchers.slurm.launcher import SlurmLauncher
    from jobspec.launchers.slurm.upstream import UpstreamLauncher

    kind = UpstreamLauncher if mode == "upstream" else SlurmLauncher
    return kind(connect(access), access)


def start(run: RunPaths, plan: Plan, profile: ClusterProfile, here: Allocation | None = None) -> Launch:
    """Start a rendered run, in the allocation `here` where one is given.

    Raises: JobspecError when a secret is missing or the scheduler refuses.
    """
    if run.points():  # the sweep's own batch script asks for the tasks
        from jobspec.plan import from_json

        array = from_json(run.plan.read_text(encoding="utf-8")).slurm.array
        plan = replace(plan, slurm=replace(plan.slurm, array=array))
    secrets = read_secrets(plan.secrets, os.environ)
    secrets |= {name: os.environ[name] for name in plan.stage_secrets if name in os.environ}
    if run.standard:
        remember_folder(run.root.parent.parent, os.environ)
    if here is not None:
        from jobspec.launchers.local import LocalLauncher

        own = here.variables(plan)
        with here.taken(run, state_folder(os.environ) / "allocations") as kept:
            launcher = LocalLauncher(
                {**os.environ, **own}, extra=(*LOCAL, *own), allocation=here.job_id, kept=kept
            )
            return launcher.submit(run, plan, secrets)
    return for_plan(plan, profile).submit(run, plan, secrets)


def foresee(plan: Plan, profile: ClusterProfile, script: str = "") -> Forecast | None:
    """What the queue says about a run that is not submitted; None without a queue.

    With the text of its batch script it also says when that would start. What does not answer is left out.
    """
    if plan.scheduler == "local":
        return None
    from jobspec.launchers.access import connect
    from jobspec.launchers.slurm.forecast import foresee as ask

    access = access_of(profile)
    return ask(connect(access), plan, script)


def query(launches: Iterable[Launch], unanswered: list[Finding] | None = None) -> dict[Launch, JobStatus]:
    """The state of each launch, by one scheduler call for each cluster and login.

    Raises: JobspecError when a scheduler does not answer. With `unanswered` it is waited for but briefly:
    the findings go there instead, and the reasons of the states tell what the runs' own files say.
    """
    groups: dict[tuple[str, Access], list[Launch]] = {}
    states: dict[Launch, JobStatus] = {}
    for launch in launches:
        stranger = owner(Path(launch.root)) if launch.login != "here" else ""
        if stranger:  # no host that a record of somebody else names is asked
            states[launch] = JobStatus(JobState.UNKNOWN, f"a remote run of {stranger}, who can tell")
            continue
        groups.setdefault((launch.launcher, access_of_launch(launch)), []).append(launch)
    for members in groups.values():
        said = {launch: _files_say(launch) for launch in members} if unanswered is not None else {}
        within = math.inf if unanswered is None else BRIEF_S if all(said.values()) else PATIENT_S
        try:
            states.update(for_launch(members[0]).query(members, within))
        except JobspecError as problem:
            if unanswered is None:
                raise
            unanswered += problem.findings
            away = problem.findings[0].what
            states.update(
                {
                    launch: JobStatus(JobState.UNKNOWN, "; ".join(filter(None, (said[launch], away))))
                    for launch in members
                }
            )
    return states


def _files_say(launch: Launch) -> str:
    """How the newest attempt ended by `results.json`; empty where none is there."""
    try:
        results = read_results(RunPaths(Path(launch.root)))
    except JobspecError:
        return ""
    return "" if results is None else f"results.json says `{results.get('outcome')}`"


def refuse_unsettled(folder: Path, allow: Sequence[str]) -> None:
    """Settle the newest runs in `folder` whose submission was interrupted.

    Raises: JobspecError that names each of them, for another run could do the same work twice.
    """
    rule = error("launch.unsettled", "")
    lost = () if is_allowed(rule, allow) else tuple(_unsettled(folder))
    if not lost:
        return
    unanswered: list[Finding] = []
    states = query(lost, unanswered)
    again = f"`--allow {rule.rule}` starts another run"
    findings = []
    for launch in lost:
        now, status = read_launch(RunPaths(Path(launch.root))) or launch, states[launch]
        if (
            now.submitted or status.state is not JobState.UNKNOWN
        ):  # a full disk keeps the id from being written
            what = (
                f"run `{now.run_id}` of this name is job {now.job_id or now.job_name}, {status.state.value}"
            )
            fix = f"`jobspec status {now.run_id}` watches it; {again}"
        else:
            said = status.reason.partition("; ")[0]
            what = f"run `{now.run_id}` of this name may have been submitted: {said}"
            fix = f"`jobspec submit {now.root}` goes on with it; {again}"
        why = "its submission was interrupted before the scheduler's answer came"
        findings.append(replace(rule, what=what, why=why, fix=fix))
    raise JobspecError(*findings, *unanswered)


def _unsettled(folder: Path) -> Iterator[Launch]:
    """This user's runs right below `folder` whose job has no id yet, the newest ones."""
    try:
        roots = sorted(folder.iterdir(), reverse=True)
    except OSError:
        return
    own = (root for root in roots if not owner(root))  # a shared folder has those of others
    for run in map(RunPaths, itertools.islice(own, MAX_UNSETTLED)):
        with contextlib.suppress(JobspecError, OSError):  # a damaged record is told where its run is named
            launch = read_launch(run)
            lost = launch is not None and launch.launcher == "slurm" and not launch.submitted
            if launch is not None and lost and not busy(run.job):  # no command submits it right now
                yield launch


def cancel(launch: Launch) -> None:
    """Ask for the end of one run. Raises: JobspecError when that is refused."""
    for_launch(launch).cancel([launch])


def cancel_started() -> None:
    """Cancel what this process has started on this machine; jobs of a scheduler go on."""
    from jobspec.launchers import local

    local.cancel_started()


def record_final(run: RunPaths, status: JobStatus) -> None:
    """Write `scheduler.json` once the job's state is final, for the run and each point of a sweep.

    Where not all can be written, the next call asks the scheduler again: the run's own file comes last.
    """
    if status.state.final:
        with contextlib.suppress(OSError):
            _record(run, status)


def _record(run: RunPaths, status: JobStatus) -> None:
    for point in run.points():
        task = status.tasks.get(int(point.run_id))
        if not status.tasks and point.attempts() and not point.exit_file.is_file():
            task = status  # in one allocation: the point that ran when the whole job was ended
        if task is not None:
            write_json(point.scheduler, task.to_json())
    write_json(run.scheduler, status.to_json())


def sync(launch: Launch) -> None:
    """Copy what a run on a remote cluster has written so far to this machine; a local run needs nothing.

    Nobody connects to the host that a stranger's record names.
    """
    if launch.login == "here" or not launch.submitted or owner(Path(launch.root)):
        return
    from jobspec.launchers.access import connect

    connect(launch).download(launch.run_dir, Path(launch.root))
