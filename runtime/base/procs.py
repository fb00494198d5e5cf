"""Processes that the runtime starts, and the promise that none of them outlives it.

`guard` puts a small parent above the agent: the subreaper of everything below. However the agent ends,
SIGKILL included, the guard ends what is left by pid. It never stops a process by name, and touches nothing
outside this tree: other jobs of the same user may share the node.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple, Union

from jobspec.runtime.base import signals

PR_SET_PDEATHSIG = 1  # prctl(2)
PR_SET_CHILD_SUBREAPER = 36  # prctl(2), Linux 3.4
POLL_S = 0.02  # how often the end of a process that is not our child is looked at
_GUARD = 0  # pid of the guard above this process, set by `guard`
KILL_S = 2.0  # for SIGKILL to act: a process that waits for a dead disk or GPU (state D) ignores it too
LEFTOVER_GRACE_S = 2.0  # between SIGTERM and SIGKILL for what the agent left behind


def prctl(option: int, value: int) -> None:
    """Call prctl(2). Raises: OSError when the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@dataclass(frozen=True)
class ProcessInfo:
    """One line of the process table."""

    pid: int
    parent: int
    session: int
    state: str  # Z is a zombie, proc(5)


def process_table() -> Dict[int, ProcessInfo]:
    """Every process that /proc shows, by pid. Source: proc(5), fields of /proc/<pid>/stat."""
    table: Dict[int, ProcessInfo] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - scanned often, on nodes with thousands of processes
        if not name.isdecimal():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The command name may contain spaces and brackets: fields start after the last one.
            fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
            pid = int(name)
            table[pid] = ProcessInfo(pid, int(fields[1]), int(fields[3]), fields[0].decode())
    return table


def descendants(root: int, table: Optional[Mapping[int, ProcessInfo]] = None) -> List[int]:
    """Pids below `root`, parents before children, zombies left out."""
    known = process_table() if table is None else table
    children: Dict[int, List[int]] = {}
    for info in known.values():
        children.setdefault(info.parent, []).append(info.pid)
    pids: List[int] = []
    queue = [root]
    while queue:
        for pid in children.get(queue.pop(0), []):
            queue.append(pid)
            if known[pid].state != "Z":
                pids.append(pid)
    return pids


def started(pid: int) -> int:
    """When a process that runs was started, in ticks since boot; 0 for one that has ended.

    It tells a process from a later one that got its pid. Source: proc(5), `/proc/pid/stat` fields 3 and 22.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0


def alive(pid: int) -> bool:
    """True while `pid` runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except (OSError, IndexError):
        return False


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to each pid; one that is gone is no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def wait_gone(pids: Iterable[int], deadline_s: float) -> Set[int]:
    """The pids that still run after at most `deadline_s`."""
    left = {pid for pid in pids if alive(pid)}
    end = time.monotonic() + deadline_s
    while left and time.monotonic() < end:
        time.sleep(POLL_S)
        left = {pid for pid in left if alive(pid)}
    return left


def end_all(pids: Iterable[int], grace_s: float) -> Set[int]:
    """SIGTERM, then after `grace_s` SIGKILL; returns what even that did not end within 2 s."""
    targets = set(pids)
    send(targets, signal.SIGTERM)
    left = wait_gone(targets, grace_s)
    send(left, signal.SIGKILL)
    return wait_gone(left, KILL_S)


def output(
    argv: Sequence[str], timeout_s: float, env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None
) -> Tuple[int, bytes, bytes]:
    """(status, stdout, stderr) of a short command.

    subprocess.run waits without end for one that SIGKILL does not end: nvidia-smi on a broken GPU.
    Raises: OSError, subprocess.TimeoutExpired.
    """
    process = subprocess.Popen(
        list(argv),
        env=None if env is None else dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_S)
        raise
    return process.returncode, out, err


def exit_status(returncode: int) -> int:
    """A shell's exit status for Popen's: 128+n for a process that signal n ended."""
    return 128 - returncode if returncode < 0 else returncode


class Child:
    """A process in a session of its own; everything in it can be ended together."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Optional[str] = None,
        stdout: Union[int, IO[bytes], None] = None,
    ) -> None:
        """Start `argv`; stderr goes where stdout goes. Raises: OSError when it cannot start."""
        self.argv = tuple(argv)
        self._over = False  # nothing of it is left: its pid may be another's by now
        self.process = subprocess.Popen(
            list(argv),
            env=dict(env),
            cwd=cwd or None,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT if stdout is not None else None,
            start_new_session=True,
            restore_signals=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> IO[bytes]:
        """The read end of a child that was started with `stdout=PIPE`."""
        if self.process.stdout is None:
            raise ValueError(f"{self.argv[0]} was not started with a pipe")
        return self.process.stdout

    def running(self) -> bool:
        return self.process.poll() is None

    def wait(self, timeout_s: Optional[float] = None) -> Optional[int]:
        """Popen's return code, or None when it still runs after `timeout_s`."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def members(self) -> List[int]:
        """Everything below the process or in its session, itself included while it runs."""
        table = process_table()
        session = [info.pid for info in table.values() if info.session == self.pid and info.state != "Z"]
        return sorted(set(session) | set(descendants(self.pid, table)))

    def terminate(self, grace_s: float) -> None:
        """SIGTERM to all members, SIGKILL to those that are left after `grace_s`."""
        if self._over:
            return
        members = {pid: started(pid) for pid in self.members()}
        send(members, signal.SIGTERM)
        self.wait(grace_s)
        # Pid and start time identify processes that left the session: the grace may last minutes.
        left = {pid for pid, start in members.items() if start and started(pid) == start}
        left.update(self.members())
        end_all(left, 0.5 if self.running() else min(1.0, grace_s))
        self._over = self.wait(2.0) is not None and not self.members()

    def signal_leader(self, number: int) -> None:
        """Signal the process alone: `ray start --block` ends its own children in order."""
        if self.running():
            send([self.pid], number)


def guard(run: Callable[[], int]) -> int:
    """The exit status of `run`, which runs in a child; nothing of it is left when this returns.

    The guard forwards signals. `run` has its own session, so a signal to the whole process group arrives
    once. No signal arrives before `run` calls `signals.receive`. Call this before any thread starts.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    parent = os.getpid()
    # Until the end: srun sends SIGTERM to all tasks as soon as one has failed, also to one that is ending.
    signals.hold()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _become_agent(parent, run)
    status = signals.reap_until(pid)
    _end_leftovers()
    return exit_status(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def guard_is_gone() -> bool:
    """Whether the guard above this agent was killed: the signal that tells of it is nobody's wish."""
    return _GUARD > 0 and os.getppid() != _GUARD


def leftovers() -> List[int]:
    """What still runs below the guard beside this process; empty when no guard is above it."""
    if os.getppid() != _GUARD:
        return []
    return [pid for pid in descendants(_GUARD) if pid != os.getpid()]


def _become_agent(parent: int, run: Callable[[], int]) -> None:
    global _GUARD
    _GUARD = parent
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before prctl
        os._exit(1)
    status = 1
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        status = run()
    except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
        # The only place where a traceback is right: whatever arrives here is a bug, and says so.
        import traceback

        traceback.print_exc()
        sys.stderr.write("jobspec: this is a bug in jobspec's runtime\n")
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


def _end_leftovers() -> None:
    """End everything below this process, round by round: a parent may have started more."""
    end = time.monotonic() + LEFTOVER_GRACE_S
    while True:
        left = descendants(os.getpid())
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not left:
            return
        send(left, signal.SIGTERM if time.monotonic() < end - LEFTOVER_GRACE_S / 2 else signal.SIGKILL)
        if time.monotonic() > end + LEFTOVER_GRACE_S:
            return  # uninterruptible (state D): the kernel ends it when its I/O returns
        time.sleep(POLL_S)
