"""A run on this machine: the same batch script in a session of its own, without a scheduler.

The process outlives the command that started it. Its pid, its start time and its command line together
identify it: no other process is signalled, whatever `launch.json` says.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from jobspec.finding import fail
from jobspec.launchers.base import HERE, JobState, JobStatus, new_launch
from jobspec.launchers.environment import LOCAL, submission_environment
from jobspec.launchers.file_lock import locked
from jobspec.plan import Plan
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch, read_launch, read_results, write_launch

EXIT_FILE = "job-exit"
CANCEL_FILE = "job-cancelled"
OVERDUE_FILE = (
    "job-overdue"  # the batch script's, in an allocation: it has killed what went on past the limit
)
# How long a cancelled run may take to collect its logs before it is killed.
CANCEL_GRACE_S = 60.0
_POLL_S = 0.1
_KEEPER_NAME = "jobspec-local"
_EOF_S, _NOT_BEGUN = 2.0, 85  # seconds in which a keeper without its start line ends, and its exit code

# Runs the job, or the points of a sweep one after the other, and notes how it ended. The traps keep this
# shell alive when the whole group is told to end: bash runs them after its child has finished.
# It begins when it reads a line: if whoever started it ends before the run is recorded, nothing has run.
# The file for the exit code is written in advance, so that a disk which the run has filled has room for it.
_KEEPER = r"""
read -r _ || exit 85
exec </dev/null
trap : TERM INT HUP
run_dir=$1; shift; code=0 full='' within=${JOBSPEC_WITHIN-} kept=${JOBSPEC_KEPT-}
unset JOBSPEC_WITHIN JOBSPEC_KEPT
printf '%40s\n' '' > "$run_dir/.job-exit"
run_one() { eval 'JOBSPEC_LOCAL=${JOBSPEC_LOCAL-1} $within bash "$run_dir/job.sbatch"' ${kept:+"$kept>&-"}; }
if [ "$#" -eq 0 ]; then
  run_one || code=$?
else
  for point; do
    if [ -e "$run_dir/job-cancelled" ]; then break; fi
    status=0
    SLURM_ARRAY_TASK_ID=$point run_one || status=$?
    printf '%s\n' "$status" > "$run_dir/points/$point/job-exit"
    if [ "$status" -ne 0 ]; then code=$status; fi
  done
fi
printf x 2>&- > "$run_dir/.job-room" || full='no space left'
rm -f "$run_dir/.job-room"
printf '%-40s\n' "$code $full" 1<> "$run_dir/.job-exit" && mv "$run_dir/.job-exit" "$run_dir/job-exit"
"""


class LocalLauncher:
    """Starts `job.sbatch` of a run directory as a detached process group of this machine."""

    name = "local"

    def __init__(
        self,
        env: Mapping[str, str] | None = None,
        *,
        clock: Callable[[], float] = time.time,
        grace_s: float = CANCEL_GRACE_S,
        extra: Sequence[str] = LOCAL,
        allocation: str = "",
        kept: int | None = None,
    ) -> None:
        """`extra` names variables that the run gets, beside those of every client, `allocation` the Slurm job
        that it runs in; its keeper, and nothing that it starts, keeps the descriptor `kept` open.
        """
        self._extra = extra
        self._allocation = allocation
        self._kept = kept
        self._env = dict(os.environ if env is None else env)
        self._clock = clock
        self._grace_s = grace_s

    def submit(self, run: RunPaths, plan: Plan, secrets: Mapping[str, str]) -> Launch:
        """Start the run; a run that was started before is returned as it is."""
        with locked(run.job):
            return self._submit_once(run, plan, secrets)

    def _submit_once(self, run: RunPaths, plan: Plan, secrets: Mapping[str, str]) -> Launch:
        launch = read_launch(run)
        if launch is not None and launch.submitted:
            return launch
        if not run.job.is_file():
            raise fail("launch.incomplete", f"`{run.root}` lacks `job.sbatch`", fix="render the spec again")
        launch = launch or new_launch(run, plan, self.name, HERE, self._clock())
        launch = replace(launch, allocation=self._allocation)
        write_launch(run, launch)
        keeper = self._start(run, secrets)
        try:
            launch = replace(
                launch,
                job_id=str(keeper.pid),
                submit_time=self._clock(),
                process_start=process_start(keeper.pid),
                boot_id=boot_id(),
            )
            write_launch(run, launch)
            _STARTED.append(launch)
            _begin(keeper)
        except BaseException:  # Ctrl-C among them: nobody would know that it runs
            self._take_back(run, keeper, launch)
            raise
        return launch

    def _take_back(self, run: RunPaths, keeper: subprocess.Popen[bytes], launch: Launch) -> None:
        """Undo an interrupted start: remove its record, or cancel a run that has begun."""
        with contextlib.suppress(OSError):
            if keeper.stdin is not None:
                keeper.stdin.close()
        try:
            begun = keeper.wait(_EOF_S) != _NOT_BEGUN
        except subprocess.TimeoutExpired:
            begun = True
        if begun:
            self.cancel([launch])
        else:
            run.state.unlink(missing_ok=True)

    def _start(self, run: RunPaths, secrets: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """The shell that will run the job, once it is told to begin."""
        env = submission_environment(self._env, secrets, self._extra)
        if self._kept is not None:
            env["JOBSPEC_KEPT"] = str(self._kept)
        # The interpreter that runs jobspec has what `.[local]` installed; a venv need not be activated.
        env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
        points = (point.run_id for point in run.points())
        argv = ["bash", "-c", _KEEPER, _KEEPER_NAME, str(run.root), *points]
        with (run.root / "job-local.log").open("ab") as log:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=run.root,
                start_new_session=True,
                pass_fds=() if self._kept is None else (self._kept,),
            )
        _CHILDREN[process.pid] = process
        return process

    def query(self, launches: Sequence[Launch], within_s: float = math.inf) -> Mapping[Launch, JobStatus]:
        return {launch: _status(launch) for launch in launches}

    def cancel(self, launches: Sequence[Launch]) -> None:
        """End the runs: TERM to every process of their sessions, and KILL when the grace is over."""
        live = [launch for launch in launches if launch.submitted and alive(launch)]
        for launch in live:
            (Path(launch.root or launch.run_dir) / CANCEL_FILE).touch()
            _signal(launch, signal.SIGTERM)
        deadline = time.monotonic() + self._grace_s
        while time.monotonic() < deadline and any(alive(launch) for launch in live):
            time.sleep(_POLL_S)
        for launch in live:
            if alive(launch):
                _kill_all(launch)


# Children of this process must be waited for, or an ended one looks alive until we end.
_CHILDREN: dict[int, subprocess.Popen[bytes]] = {}
_STARTED: list[Launch] = []


def cancel_started() -> None:
    """Cancel each run that this process has started and nobody has cancelled, after an early Ctrl-C."""
    started = [launch for launch in _STARTED if not (Path(launch.run_dir) / CANCEL_FILE).exists()]
    LocalLauncher().cancel(started)


def _begin(keeper: subprocess.Popen[bytes]) -> None:
    if keeper.stdin is not None:
        keeper.stdin.write(b"begin\n")
        keeper.stdin.close()


def alive(launch: Launch) -> bool:
    """True while the very process that was started exists: not a later one with its number, nor any other."""
    pid = int(launch.job_id)
    child = _CHILDREN.get(pid)
    if child is not None and child.poll() is not None:
        return False
    same = launch.boot_id == boot_id() and process_start(pid) == launch.process_start != ""
    return same and _keeps(pid, launch)


def _keeps(pid: int, launch: Launch) -> bool:
    """Whether a process is the keeper of this very run folder, or has no command line yet or any more."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    if words == [b""]:  # between the two moments at which exec(2) succeeds and sets it, or while it ends
        return True
    if words[3:4] != [_KEEPER_NAME.encode()]:
        return False
    folder = Path(os.fsdecode(words[4]))
    try:
        return folder.samefile(launch.root or launch.run_dir)
    except OSError:  # the folder was moved while the run goes on
        return str(folder) == launch.run_dir


def _signal(launch: Launch, number: signal.Signals) -> None:
    try:
        os.killpg(int(launch.job_id), number)
    except ProcessLookupError:
        return
    except PermissionError as problem:
        raise fail(
            "launch.not-yours",
            f"process {launch.job_id} belongs to another user",
            fix="cancel it as that user",
        ) from problem


def _kill_all(launch: Launch) -> None:
    """Kill the run with its agent and programs, which have sessions of their own."""
    from jobspec.runtime.base.procs import descendants, send

    below = descendants(int(launch.job_id))
    _signal(launch, signal.SIGKILL)
    send(below, signal.SIGKILL)


def _status(launch: Launch) -> JobStatus:
    run = RunPaths(Path(launch.root or launch.run_dir))
    if not launch.submitted:
        return JobStatus(JobState.UNKNOWN, "the run was about to start, and no process was recorded")
    host = os.uname().nodename
    if alive(launch):
        return JobStatus(JobState.RUNNING, nodes=host)
    code = _read_code(run.root / EXIT_FILE)
    if (run.root / CANCEL_FILE).exists():
        return JobStatus(JobState.CANCELLED, "cancelled by its user", code, host)
    if (run.root / OVERDUE_FILE).exists():
        return JobStatus(JobState.TIMEOUT, "it did not end when it was told to, and was killed", code, host)
    if code is None:
        return _without_code(launch, run, host)
    state = JobState.COMPLETED if code == 0 else JobState.FAILED
    tasks = {int(point.run_id): _task(point) for point in run.points()}
    return JobStatus(state, "" if code == 0 else _why_failed(run, code), code, host, tasks=tasks)


def _task(point: RunPaths) -> JobStatus:
    code = _read_code(point.root / EXIT_FILE)
    if code is None:
        return JobStatus(JobState.CANCELLED, "did not start")
    return JobStatus(JobState.COMPLETED if code == 0 else JobState.FAILED, exit_code=code)


def _without_code(launch: Launch, run: RunPaths, host: str) -> JobStatus:
    """The keeper is gone and noted nothing: it was killed, or the machine was restarted."""
    results = read_results(run)
    if results is not None:
        state = JobState.COMPLETED if results.get("outcome") == "ok" else JobState.FAILED
        return JobStatus(state, "from results.json", results.get("exit_code"), host)
    if launch.boot_id != boot_id():
        return JobStatus(JobState.NODE_FAIL, "this machine was restarted, or is another one", nodes=host)
    return JobStatus(JobState.FAILED, "the process was killed", 137, host)


def _read_code(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _why_failed(run: RunPaths, code: int) -> str:
    """The reason for an exit code; the keeper notes beside it whether the run's file system was full."""
    full = "no space left" in (run.root / EXIT_FILE).read_text(encoding="ascii")
    return f"exit code {code}" + (f", and no space is left below `{run.root}`" if full else "")


def process_start(pid: int) -> str:
    """Clock ticks after boot at which a process started; empty when there is none or it is a zombie."""
    from jobspec.runtime.base.procs import started

    return str(started(pid) or "")


def boot_id() -> str:
    """This boot of this machine's kernel; empty where there is no /proc."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
