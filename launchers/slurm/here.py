"""An allocation that is already there: a run's batch script in it, without sbatch.

It is that of this shell (`salloc`), or a running job of this user, such as a held run. The script runs here,
and its srun starts a step of that job.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobspec.finding import Finding, JobspecError, error, fail, warning
from jobspec.launchers.access.command import Client
from jobspec.launchers.slurm.commands import expand_ranges, gpus_by_type, job_unknown, refusal_fix
from jobspec.launchers.slurm.retry import run_retrying
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch
from jobspec.runtime.base.run_files import read_text
from jobspec.units import duration, parse_bytes, slurm_time

if TYPE_CHECKING:
    from jobspec.plan import Plan

# What a script of the site may ask of the job. What a step or the shell around asks for (tasks, cores,
# bindings) would become the run's.
_OF_THE_JOB = re.compile(r"SLURM_(JOB_\w+|JOBID|NODELIST|NNODES|CLUSTER_NAME|GPUS(_PER_NODE|_ON_NODE)?)")
# From here on step ids are Slurm's own: the shell of `salloc` may be one (`use_interactive_step`). slurm.h
_NO_STEP = 0xFFFFFFF0
_FIELD = re.compile(r"(?<!\S)(\w+)=(\S*)")
_COMMAND = re.compile(r"(?<!\S)Command=(.*?)(?= \w+=|$)")  # a folder of runs may have blanks
_NODES = re.compile(r"(?<!\S)Nodes=\S+ CPU_IDs=(\S*) Mem=(\d*) GRES=(\S*)")
KILL_WAIT_S = 30  # from the time limit on, as Slurm's KillWait by default
_OLD_S = 30 * 86400.0  # no allocation is as old: its lock file is removed


@dataclass(frozen=True)
class Allocation:
    """What the allocation has, at least, on each of its nodes; what Slurm does not say is None or 0."""

    job_id: str
    nodes: int
    cpus: int = 0
    gpus: int | None = None
    gpu_types: frozenset[str] = frozenset()
    memory_mib: int = 0
    left_s: float | None = None  # None: no end is known
    start: str = ""
    held: bool = False  # of a run of ours, which has its containers and its Ray on the nodes
    env: Mapping[str, str] = field(default_factory=dict, repr=False)

    def variables(self, plan: Plan) -> dict[str, str]:
        """What a run in it needs. Its step shares the resources with whatever is there.

        Nobody else ends a run that takes longer than it asked for.
        """
        limit = (plan.time_limit_s or 0) - plan.slurm.grace_s
        own = {"SLURM_OVERLAP": "1", "JOBSPEC_LOCAL": ""}  # its agents are those of a cluster
        if limit > 0:
            own["JOBSPEC_WITHIN"] = f"timeout --foreground --preserve-status -s USR1 {limit}"
            own["JOBSPEC_GRACE_S"] = str(plan.slurm.grace_s + KILL_WAIT_S)
        return {**self.env, **own}

    def sets(self, data: Mapping[str, Any], counted: bool) -> list[str]:
        """Overrides by which a spec asks for what is there, where it leaves that open; no run is requeued.

        `counted`: the site's GPUs are counted by Slurm, so that an allocation without any has none.
        """
        resources = data.get("resources") or {}
        gpus = 0 if self.gpus is None and counted else self.gpus
        has = {"cpus_per_node": self.cpus or None, "gpus_per_node": gpus}
        sets = [f"resources.{key}={n}" for key, n in has.items() if n is not None and key not in resources]
        return [*sets, "launch.requeue.max_attempts=1"] if "max_attempts" in _requeue(data) else sets

    def unused(self, data: Mapping[str, Any]) -> Iterator[Finding]:
        """A warning for each key of a spec that only a job of its own would use."""
        keys = [f"slurm.{key}" for key in data.get("slurm") or {}]
        keys += ["resources.exclusive"] if "exclusive" in (data.get("resources") or {}) else []
        keys += ["launch.requeue.max_attempts"] if "max_attempts" in _requeue(data) else []
        # Beside a held run there is always a step that is not the run's own.
        keys += ["launch.hold_idle"] if self.held and "hold_idle" in (data.get("launch") or {}) else []
        keys += ["launch.kept_ray"] if not self.held and (data.get("launch") or {}).get("kept_ray") else []
        for key in keys:
            what = f"`{key}` does nothing in the allocation {self.job_id}"
            why = "no held run is there" if key == "launch.kept_ray" else "it is about a job of its own"
            yield warning("launch.here", what, why, path=key)

    def lacks(self, plan: Plan, login: str = "here", in_turn: bool = False) -> Iterator[Finding]:
        """What a run asks for beyond it. `in_turn`: its batch script runs the points of a sweep by itself."""
        if plan.scheduler != "slurm":
            what, fix = f"the site profile `{plan.cluster}` has no Slurm", "name the cluster's by `--cluster`"
            yield _refused(what, fix, "cluster")
            return
        if login != "here":
            what = f"the nodes of `{plan.cluster}` are reached by `{login}`, and srun runs on this machine"
            yield _refused(what, f"log in to `{login}`, and run jobspec there", "cluster")
        if plan.slurm.requeue_max:
            what = "the run would requeue the allocation"
            fix = "render it with `launch.requeue.max_attempts: 1`"
            yield _refused(what, fix, "launch.requeue.max_attempts")
        if len(plan.components) > 1:
            what = "the run's groups ask for different nodes, and one allocation has equal ones"
            yield _refused(what, "submit it, or give its groups equal nodes", "groups")
        if self.held and plan.mode == "upstream":
            what = "the framework's own script would take the containers of the held run for its own"
            yield _refused(what, "use mode `ray`, or an allocation of `salloc`", "launch.mode")
        if in_turn:
            what = "the points of a sweep run in an allocation like those of an array, one after the other"
            fix = "use `sweep.mode: array`, of levels `coverage.split: jobs`"
            yield _refused(what, fix, "sweep.mode")
        yield from self._too_little(plan)

    def _too_little(self, plan: Plan) -> Iterator[Finding]:
        gpus = 0 if self.gpus is None and plan.slurm.gpus != "none" else self.gpus
        rows = (
            ("nodes", plan.nodes, self.nodes, "nodes"),
            ("gpus_per_node", plan.gpus_per_node, gpus, "GPUs per node"),
            ("cpus_per_node", plan.slurm.cpus_per_task or 0, self.cpus or None, "CPUs per node"),
            ("memory", _mib(plan.slurm.memory), self.memory_mib or None, "MiB of memory per node"),
        )
        for key, wanted, has, words in rows:
            if has is not None and wanted > has:
                what = f"the run asks for {wanted} {words}, the allocation {self.job_id} has {has}"
                yield _refused(what, f"use {has} or fewer, or a larger allocation", f"resources.{key}")
        kind = plan.slurm.gpu_type
        if kind and any(self.gpu_types) and kind not in self.gpu_types:
            has_kinds = ", ".join(sorted(filter(None, self.gpu_types)))
            what = f"the run asks for GPUs of type `{kind}`, the allocation {self.job_id} has {has_kinds}"
            yield _refused(what, "ask for that type, or for another allocation", "resources.gpu_type")
        if self.left_s is not None and (plan.time_limit_s or 0) > self.left_s:
            asked, left = slurm_time(plan.time_limit_s or 0), duration(max(0.0, self.left_s))
            what = f"the run asks for {asked}, the allocation {self.job_id} ends in {left}"
            minutes = slurm_time(max(60, int(self.left_s) // 60 * 60 - 60))
            yield _refused(what, f"set `resources.time={minutes}`, or get another one", "resources.time")

    @contextlib.contextmanager
    def taken(self, run: RunPaths, folder: Path) -> Iterator[int | None]:
        """The descriptor by which `run` keeps the allocation to itself while its keeper has it open.

        A `folder` that takes no lock gives no protection and no error.

        Raises: JobspecError while another run has it.
        """
        with contextlib.ExitStack() as held:
            kept = None
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                _remove_old(folder)
                name = f"{self.job_id}-{re.sub(r'[^0-9T]', '', self.start)}"  # Slurm uses ids again
                file = held.enter_context((folder / name).open("a+", encoding="utf-8"))
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    file.seek(0)
                    raise _in_use(self.job_id, RunPaths(Path(file.read(4096).strip()))) from None
                file.truncate(0)
                file.write(str(run.root))
                file.flush()
                kept = file.fileno()
            yield kept


def _refused(what: str, fix: str, path: str = "", why: str = "") -> Finding:
    return error("launch.here", what, why, fix, path=path)


def _mib(memory: str) -> int:
    return parse_bytes(memory) >> 20 if memory else 0


def _in_use(job_id: str, run: RunPaths) -> JobspecError:
    what = f"run `{run.ref}` is in the allocation {job_id}"
    why = "two at once would share its GPUs and memory, and neither would prove anything"
    fix = f"wait for it (`jobspec status {run.ref} --watch`), cancel it, or use another allocation"
    return fail("launch.here", what, why, fix)


def _remove_old(folder: Path) -> None:
    for path in folder.iterdir():
        if path.stat().st_mtime < time.time() - _OLD_S:
            path.unlink(missing_ok=True)


def _requeue(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return (data.get("launch") or {}).get("requeue") or {}


def of_shell(env: Mapping[str, str], client: Client) -> Allocation:
    """The allocation of this shell. Raises: JobspecError outside of one, and in a step of it."""
    job_id = env.get("SLURM_JOB_ID", "")
    if not job_id.isdecimal():
        why = "this shell belongs to no job: SLURM_JOB_ID is not set"
        fix = "start one by `salloc --nodes=N ...`, or name a held run or your job: `--here RUN|JOBID`"
        raise fail("launch.here", "there is no allocation here", why, fix)
    step = env.get("SLURM_STEP_ID", "")
    inside = env.get("JOBSPEC_RUN_DIR", "")
    if inside or (step.isdecimal() and int(step) < _NO_STEP):
        what = f"this is a step of the job {job_id}" + (f", of run `{Path(inside).name}`" if inside else "")
        why = "a run in a step would share that step's cores and end with it"
        fix = f"call it from the shell of `salloc`, or from a login node: `--here {job_id}`"
        raise fail("launch.here", what, why, fix)
    if elsewhere := env.get("SLURM_WORKING_CLUSTER", "").partition(":")[0]:
        what = f"the allocation {job_id} is in the cluster `{elsewhere}`, not in this one"
        raise fail("launch.here", what, fix=f"log in to `{elsewhere}`, and use `--here {job_id}` there")
    own = {name: value for name, value in env.items() if _OF_THE_JOB.fullmatch(name)}
    found = of_job(job_id, client)
    return replace(found, env={**found.env, **own})


def job_of(launch: Launch, cluster: str) -> str:
    """The job whose nodes a run has. Raises: JobspecError where there is none, or it is not of `cluster`."""
    name = f"run `{launch.run_id}`"
    if launch.allocation or launch.launcher != "slurm":
        job = launch.allocation
        what = f"{name} is " + (f"itself in the allocation {job}" if job else "of this machine, and no job")
        raise fail(
            "launch.here", what, fix=f"name that: `--here {job}`" if job else "name a run of a cluster"
        )
    if launch.cluster != cluster:
        what = f"{name} is on `{launch.cluster}`, the spec is for `{cluster}`"
        fix = f"use `--cluster {launch.cluster}`, or name the job's number where both are one Slurm"
        raise fail("launch.here", what, fix=fix)
    if launch.login != "here":
        what = f"{name} is on a cluster that is reached by `{launch.login}`, and srun runs on this machine"
        raise fail("launch.here", what, fix=f"log in to `{launch.login}`, and run jobspec there")
    if launch.array or not launch.submitted:
        what = f"{name} is an array of jobs" if launch.array else f"the job of {name} is not known yet"
        raise fail("launch.here", what, fix="name the number of one job: `squeue --me -r -o '%A %i %T'`")
    return launch.job_id


def of_job(job_id: str, client: Client) -> Allocation:
    """A running job of this user. Raises: JobspecError for any other, and for a run that is not held."""
    done = run_retrying(client, ["scontrol", "show", "job", "-d", "-o", job_id])
    if done.code != 0 or done.timed_out:
        if job_unknown(done.stderr):
            what = f"this cluster's Slurm knows no job {job_id}"
            why = "it has ended, or is a job of another cluster"
            raise fail("launch.here", what, why, "`squeue --me` lists your jobs here")
        fix = refusal_fix(done.complaint, "try again")
        raise fail("launch.here", f"Slurm does not say what the job {job_id} has", done.complaint, fix)
    rows = [line for line in done.stdout.splitlines() if line.startswith("JobId=")]
    if len(rows) != 1:
        what = f"the job {job_id} is an array, or made of several"
        raise fail("launch.here", what, fix="name the number of one job: `squeue --me -r -o '%A %i %T'`")
    found = parse_job(rows[0], datetime.now(), os.getuid())
    script = _COMMAND.search(rows[0])
    command = Path(script[1] if script else "")
    if command.name == "job.sbatch" and (command.parent / "plan.json").is_file():
        _must_be_held(RunPaths(command.parent), job_id)
        return replace(found, held=True)
    return found


def parse_job(row: str, now: datetime, uid: int) -> Allocation:
    """What a line of `scontrol show job -d -o` says. Raises: JobspecError for a job that takes no step."""
    cells: dict[str, str] = dict(reversed(_FIELD.findall(row)))  # the first of a name counts
    job_id, state = cells.get("JobId", ""), cells.get("JobState", "?")
    user, _, number = cells.get("UserId", "").rstrip(")").partition("(")
    if number != str(uid):
        raise fail("launch.here", f"the job {job_id} is of user {user}", fix="name a job of your own")
    if state != "RUNNING":
        waits = state in ("PENDING", "CONFIGURING", "SUSPENDED")
        fix = "wait until it runs" if waits else "`squeue --me` lists your jobs; `salloc` starts another"
        raise fail("launch.here", f"the job {job_id} is {state}", "only a running job takes a step", fix)
    nodes, count = cells.get("NodeList", ""), cells.get("NumNodes", "").partition("-")[0]
    on_each = _NODES.findall(row)
    gpus = [gpus_by_type(gres) for _, _, gres in on_each]
    # A whole node has all its GPUs, and a step gets as many as the job asked for.
    gpus += filter(None, [gpus_by_type(re.sub(r"\bgres[:/]", "", cells.get("TresPerNode", "")))])
    names = {"JOB_ID": job_id, "JOBID": job_id, "JOB_NODELIST": nodes, "NODELIST": nodes}
    names |= {"JOB_NUM_NODES": count, "NNODES": count, "JOB_PARTITION": cells.get("Partition", "")}
    account = cells.get("Account", "")
    names |= {"JOB_ACCOUNT": account} if account not in ("", "(null)") else {}
    end = _moment(cells.get("EndTime", ""))
    return Allocation(
        job_id,
        int(count) if count.isdecimal() else 0,
        min((sum(1 for _ in expand_ranges(ids)) for ids, _, _ in on_each), default=0),
        min((sum(kinds.values()) for kinds in gpus), default=0) or None,
        frozenset(kind for kinds in gpus for kind in kinds),
        min((int(memory or 0) for _, memory, _ in on_each), default=0),
        None if end is None else (end - now).total_seconds(),
        cells.get("StartTime", ""),
        env={f"SLURM_{name}": value for name, value in names.items()},
    )


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:  # `Unknown`: it has no time limit
        return None


def _must_be_held(run: RunPaths, job_id: str) -> None:
    """Raises: JobspecError while the run of a job works: its GPUs are in use."""
    attempts = run.attempts()
    with contextlib.suppress(OSError):
        events = read_text(run.attempt(attempts[-1]) / "events.jsonl", "replace") if attempts else ""
        if any(map(_says_hold, events.splitlines())):
            return
    what = f"run `{run.ref}`, the job {job_id}, is not held"
    why = "its commands still run, and its spec may not say `launch: {hold: true}`"
    raise fail("launch.here", what, why, f"wait until `jobspec logs {run.ref}` ends, or name a held run")


def _says_hold(line: str) -> bool:
    with contextlib.suppress(ValueError, AttributeError):
        return '"hold"' in line and (json.loads(line).get("data") or {}).get("what") == "hold"
    return False
