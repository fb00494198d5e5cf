"""What every launcher offers, and the states that a job can be in. Nothing here runs a command."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from jobspec.finding import fail
from jobspec.runs.paths import STEP_SCRIPTS, RunPaths
from jobspec.runs.records import Launch

if TYPE_CHECKING:
    from jobspec.plan import Plan


class JobState(Enum):
    """State of a job in Slurm's words, used for every launcher.

    Source: squeue(1) and sacct(1), "JOB STATE CODES", Slurm 20.11 to 26.05, and the manual's list of
    base states and flags. A word that is not here becomes `UNKNOWN`, with the word kept in `raw`.
    """

    PENDING = "PENDING"
    """Waiting: for resources, a dependency, a hold or a begin time; the reason says which."""
    CONFIGURING = "CONFIGURING"
    """Nodes are allocated and are being made ready; the batch script has not started."""
    RUNNING = "RUNNING"
    """The batch script runs."""
    SUSPENDED = "SUSPENDED"
    """Allocated but stopped by the scheduler; it goes on later."""
    STOPPED = "STOPPED"
    """Stopped by a signal, its processors kept."""
    SIGNALING = "SIGNALING"
    """A signal is being sent to it."""
    STAGE_OUT = "STAGE_OUT"
    """Its files are being moved by a burst buffer after the end."""
    RESIZING = "RESIZING"
    """Its allocation is about to change size."""
    COMPLETING = "COMPLETING"
    """It has ended; a node has not yet confirmed that its processes are gone."""
    REQUEUED = "REQUEUED"
    """Put back into the queue; another attempt follows."""
    REQUEUE_HOLD = "REQUEUE_HOLD"
    """Put back into the queue and held until somebody releases it."""
    REQUEUE_FED = "REQUEUE_FED"
    """Requeued by a federation of clusters."""
    RESV_DEL_HOLD = "RESV_DEL_HOLD"
    """Held since its reservation was deleted."""
    SPECIAL_EXIT = "SPECIAL_EXIT"
    """Requeued in a special state and held."""
    COMPLETED = "COMPLETED"
    """Ended with exit code 0."""
    FAILED = "FAILED"
    """Ended with another exit code."""
    CANCELLED = "CANCELLED"
    """Cancelled by its user or an administrator, perhaps before it started."""
    TIMEOUT = "TIMEOUT"
    """Ended by the scheduler at its time limit."""
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    """A process was killed since the job used more memory than it had asked for."""
    NODE_FAIL = "NODE_FAIL"
    """A node of the allocation stopped answering."""
    PREEMPTED = "PREEMPTED"
    """Ended to make room for a job of higher priority."""
    DEADLINE = "DEADLINE"
    """Ended at the deadline given at submission."""
    BOOT_FAIL = "BOOT_FAIL"
    """A node could not be booted for it."""
    LAUNCH_FAILED = "LAUNCH_FAILED"
    """The batch script could not be started, for example after a failed prolog."""
    RECONFIG_FAIL = "RECONFIG_FAIL"
    """A node could not be reconfigured for it."""
    REVOKED = "REVOKED"
    """A sibling on another cluster of a federation runs instead."""
    UNKNOWN = "UNKNOWN"
    """The scheduler said something that jobspec does not know, or contradicts itself."""
    MISSING = "MISSING"
    """The scheduler does not know the job any more and no result was left behind."""

    @property
    def final(self) -> bool:
        """True when the job will never run again by itself."""
        return self in _FINAL

    @property
    def active(self) -> bool:
        """True when the job holds nodes."""
        return self in _ACTIVE


WORDS = {state.value: state for state in JobState}
_FINAL = frozenset(
    {
        JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.TIMEOUT, JobState.OUT_OF_MEMORY,
        JobState.NODE_FAIL, JobState.PREEMPTED, JobState.DEADLINE, JobState.BOOT_FAIL, JobState.LAUNCH_FAILED,
        JobState.RECONFIG_FAIL, JobState.REVOKED, JobState.MISSING,
    }
)  # fmt: skip
_ACTIVE = frozenset(
    {
        JobState.CONFIGURING, JobState.RUNNING, JobState.SUSPENDED, JobState.STOPPED, JobState.SIGNALING,
        JobState.RESIZING, JobState.COMPLETING, JobState.STAGE_OUT,
    }
)  # fmt: skip


@dataclass(frozen=True)
class JobStatus:
    """What the scheduler says about one job. `exit_code` is 128 + signal after a signal.

    `tasks` holds the states of an array's tasks by index; `state` then sums them up.
    """

    state: JobState
    reason: str = ""
    exit_code: int | None = None
    nodes: str = ""
    restarts: int = 0
    start: str = ""  # expected or real start, in the cluster's local time
    raw: str = ""
    tasks: Mapping[int, JobStatus] = field(default_factory=dict, compare=False)

    def to_json(self) -> dict[str, Any]:
        """The content of `scheduler.json`."""
        data: dict[str, Any] = {
            "state": self.state.value,
            "reason": self.reason,
            "exit_code": self.exit_code,
            "restarts": self.restarts,
            "nodes": self.nodes,
        }
        if self.raw and self.raw != self.state.value:
            data["raw"] = self.raw
        if self.start:
            data["start"] = self.start
        if self.tasks:
            data["tasks"] = {str(index): task.to_json() for index, task in sorted(self.tasks.items())}
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> JobStatus:
        """Inverse of `to_json`; an unknown state is UNKNOWN, and what is damaged is left out."""
        word = str(data.get("state", ""))
        tasks = data.get("tasks")
        return JobStatus(
            state=WORDS.get(word, JobState.UNKNOWN),
            reason=str(data.get("reason") or ""),
            exit_code=code if isinstance(code := data.get("exit_code"), int) else None,
            nodes=str(data.get("nodes") or ""),
            restarts=data["restarts"] if isinstance(data.get("restarts"), int) else 0,
            start=str(data.get("start") or ""),
            raw=str(data.get("raw") or word),
            tasks={
                int(index): JobStatus.from_json(task)
                for index, task in (tasks.items() if isinstance(tasks, dict) else ())
                if str(index).isdecimal() and isinstance(task, dict)
            },
        )


@dataclass(frozen=True)
class Access:
    """How a cluster's login node is reached: `here`, or an SSH host."""

    login: str = "here"
    user: str = ""
    jump: str = ""
    master: str = ""


HERE = Access()


def new_launch(run: RunPaths, plan: Plan, launcher: str, access: Access, now: float) -> Launch:
    """The intent to start `run`: everything about the launch but the answer.

    The job's name ends in the run's id, or in a random one for a folder of any other name. No other job
    has this name, so it finds the job whose answer was lost.
    """
    import secrets  # 5 ms, and only who submits needs it

    tail = run.run_id if run.standard else secrets.token_hex(6)
    there = str(run.root) if access.login == "here" else f"{plan.runs}/{plan.name}/{run.run_id}"
    return Launch(
        run_id=run.run_id,
        run_dir=there,
        cluster=plan.cluster,
        launcher=launcher,
        job_name=f"{plan.name}-{tail}",
        intent_time=now,
        mode=plan.mode,
        array=plan.slurm.array,
        login=access.login,
        user=access.user,
        jump=access.jump,
        master=access.master,
        root=str(run.root),
    )


def require_files(run: RunPaths, plan: Plan) -> None:
    """Raises: JobspecError when a rendered folder of a cluster lacks a file that its job needs."""
    points = run.points()
    folders = (run.root, points[0].root) if points else (run.root,)
    needed = ("job.sbatch", "runtime.pyz", STEP_SCRIPTS[plan.mode])
    missing = [name for name in needed if not any((folder / name).is_file() for folder in folders)]
    if missing:
        raise fail(
            "launch.incomplete",
            f"`{run.root}` lacks {', '.join(f'`{name}`' for name in missing)}",
            why="a rendered run directory is complete without the login node",
            fix="render the spec again",
        )


class Launcher(Protocol):
    """Starts rendered runs and watches them. Stateless: everything it must remember is in `Launch`."""

    name: str

    def submit(self, run: RunPaths, plan: Plan, secrets: Mapping[str, str]) -> Launch:
        """Start the run once, however often it is called; the record is on disk before and after.

        Raises: JobspecError with the scheduler's own text when it refuses.
        """

    def query(self, launches: Sequence[Launch], within_s: float = math.inf) -> Mapping[Launch, JobStatus]:
        """The state of every launch, in one scheduler call where the scheduler knows them all.

        Raises: JobspecError when the scheduler has not answered after some tries, or its queue `within_s`.
        """

    def cancel(self, launches: Sequence[Launch]) -> None:
        """Ask for the end of every launch; one that has ended already is no error."""
