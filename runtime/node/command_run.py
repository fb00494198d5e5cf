"""Runs the plan's commands on one node: environment, one log each, exact exit codes.

Output passes through the agent, which redacts secrets, writes the log, and repeats it on its own
stdout (the job's log) for the first rank on the head.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Dict, List, Mapping, Optional, Protocol, Sequence, Tuple

from jobspec.finding import Finding, error, warning
from jobspec.plan import CommandPlan
from jobspec.runtime.base.full_disk import refusal
from jobspec.runtime.base.procs import Child, exit_status
from jobspec.runtime.base.redact import RedactingStream, Redactor

DRAIN_S = 2.0  # a command has ended; for how long its background processes may still hold the pipe
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as in every shell


@dataclass(frozen=True)
class Ranks:
    """Where the tasks of an `all` command stand among all nodes' tasks."""

    node_rank: int
    nodes: int
    tasks_per_node: int
    master_addr: str
    master_port: int

    def variables(self, local_rank: int) -> Dict[str, str]:
        """What torch.distributed's env:// reads. Source: its docs, "Environment variable initialization"."""
        return {
            "RANK": str(self.node_rank * self.tasks_per_node + local_rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(self.nodes * self.tasks_per_node),
            "LOCAL_WORLD_SIZE": str(self.tasks_per_node),
            "NODE_RANK": str(self.node_rank),
            "GROUP_RANK": str(self.node_rank),
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(self.master_port),
        }


@dataclass(frozen=True)
class Ended:
    """How one task of a command ended. `exit_code` is a shell's, `signal` 0 when none ended it."""

    rank: int
    exit_code: int
    signal: int
    log: str
    start: float
    end: float


def command_line(command: CommandPlan) -> List[str]:
    """The argv that is really started. `pipefail`: `| tee` must not hide a failure. Pure."""
    if command.shell:
        return ["bash", "-eo", "pipefail", "-c", command.argv[0], command.name, *command.argv[1:]]
    return list(command.argv)


class Running(Protocol):
    """A process that a task is made of: one below the agent (`Child`), or in a step of its own."""

    @property
    def output(self) -> IO[bytes]: ...

    def running(self) -> bool: ...

    def wait(self, timeout_s: Optional[float] = None) -> Optional[int]: ...

    def members(self) -> List[int]: ...

    def terminate(self, grace_s: float) -> None: ...


class Task:
    """One running task of a command."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        log: Path,
        redactor: Redactor,
        echo: bool,
        rank: int,
        child: Optional[Running] = None,
    ) -> None:
        """Start `argv`, unless it runs already as `child`. Raises: OSError when the program cannot start."""
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self.rank = rank
        self.start = time.time()
        self.problem = ""
        self._echo = echo
        self._file = log.open("ab", buffering=0)
        self._stream: RedactingStream = redactor.stream()
        self.child: Running = child or Child(argv, env, cwd or None, subprocess.PIPE)
        self._copier = threading.Thread(target=self._copy, name=f"tee-{log.name}", daemon=True)
        self._copier.start()

    def _copy(self) -> None:
        source = self.child.output.fileno()
        while True:
            data = os.read(source, 65536)
            self._write(self._stream.feed(data) if data else self._stream.flush())
            if not data:
                return

    def _write(self, data: bytes) -> None:
        """A full disk or a closed job log must not stop the program: its pipe is always emptied."""
        if not data:
            return
        try:
            self._file.write(data)
        except ValueError:
            return  # closed: the command has ended, and what it left behind still prints
        except OSError as problem:
            self.problem = refusal(problem, self.log)[0]
        if self._echo:
            try:
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
            except OSError:
                self._echo = False  # nobody reads the job's log any more; the command's log has it

    def finish(self) -> Ended:
        """Wait for the end; what the program left running is ended with it."""
        code = self.child.wait()
        end = time.time()
        self._copier.join(DRAIN_S)
        self.child.terminate(0.5)
        self._copier.join(DRAIN_S)
        try:
            self._file.close()
        except OSError as problem:  # network storage says only now that the quota is used up
            self.problem = refusal(problem, self.log)[0]
        code = 1 if code is None else code
        return Ended(self.rank, exit_status(code), max(0, -code), str(self.log), self.start, end)


class CommandRun:
    """All tasks of one command on this node."""

    def __init__(self, command: CommandPlan, index: int, logs: Path, redactor: Redactor, echo: bool) -> None:
        self.command = command
        self.index = index
        self._logs = logs
        self._redactor = redactor
        self._echo = echo
        self._tasks: List[Task] = []
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, env: Mapping[str, str], ranks: Ranks) -> Tuple[List[Ended], Tuple[Finding, ...]]:
        """Start the tasks and wait for all; the first that fails ends the others of this node."""
        count = self.command.tasks_per_node if self.command.on == "all" else 1
        problem = self._start_all(env, ranks, count)
        if problem is not None:
            self.stop(1.0)
            code = NOT_FOUND if isinstance(problem, FileNotFoundError) else NOT_EXECUTABLE
            now = time.time()
            return [Ended(0, code, 0, "", now, now)], (_cannot_start(self.command, problem),)
        ended: List[Ended] = []
        threads = [
            threading.Thread(target=lambda t=task: ended.append(self._finish(t))) for task in self._tasks
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        lost = tuple(_log_lost(task) for task in self._tasks if task.problem)
        return sorted(ended, key=lambda task: task.rank), lost

    def _start_all(self, env: Mapping[str, str], ranks: Ranks, count: int) -> Optional[OSError]:
        for local_rank in range(count):
            variables = dict(env)
            rank = 0
            if self.command.on == "all":
                variables.update(ranks.variables(local_rank))
                rank = int(variables["RANK"])
            else:
                variables.update(MASTER_ADDR=ranks.master_addr, MASTER_PORT=str(ranks.master_port))
            variables.update({key: str(value) for key, value in self.command.env.items()})
            name = (
                f"{self.command.name}-{rank}.log" if self.command.on == "all" else f"{self.command.name}.log"
            )
            echo = self._echo and local_rank == 0
            try:
                with self._lock:
                    if self._stopped:
                        return None
                    argv = command_line(self.command)
                    cwd = self.command.cwd
                    self._tasks.append(
                        Task(argv, variables, cwd, self._logs / name, self._redactor, echo, rank)
                    )
            except OSError as problem:
                return problem
        return None

    def _finish(self, task: Task) -> Ended:
        ended = task.finish()
        if ended.exit_code != 0:
            self.stop(5.0)
        return ended

    def stop(self, grace_s: float) -> None:
        """SIGTERM to every task, SIGKILL after `grace_s`."""
        with self._lock:
            first = not self._stopped
            self._stopped = True
            tasks = list(self._tasks)
        if not first and grace_s > 0:
            return
        threads = [threading.Thread(target=task.child.terminate, args=(grace_s,)) for task in tasks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _cannot_start(command: CommandPlan, problem: OSError) -> Finding:
    name = problem.filename or command_line(command)[0]
    return error(
        "driver.cannot-start",
        f"command `{command.name}` cannot start: `{name}`: {problem.strerror}",
        "neither the image nor the repositories provide it" if isinstance(problem, FileNotFoundError) else "",
        "name a program that the container has, and an existing `cwd`",
    )


def _log_lost(task: Task) -> Finding:
    return warning(
        "driver.log-lost",
        f"`{task.log}` is not complete: {task.problem}",
        "metrics that are read from it may be missing",
        "free space in the run directory",
    )


def oom_kills() -> int:
    """How often the kernel has killed in this process's memory cgroup, version 1 or 2; 0 where not visible.

    Source: admin-guide/cgroup-v2.rst (`memory.events`) and cgroup-v1/memory.rst (`memory.oom_control`).
    """
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return 0
    total = 0
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            candidates = [
                Path(f"/sys/fs/cgroup{path}/memory.events"),
                Path(f"/sys/fs/cgroup/unified{path}/memory.events"),
            ]
        elif "memory" in controllers.split(","):
            candidates = [Path(f"/sys/fs/cgroup/memory{path}/memory.oom_control")]
        else:
            continue
        total += sum(_counter(file, "oom_kill") for file in candidates)
    return total


def _counter(file: Path, name: str) -> int:
    try:
        rows = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return 0
    return sum(int(row[1]) for row in rows if len(row) == 2 and row[0] == name)


def ended_json(ended: Sequence[Ended]) -> List[Dict[str, Any]]:
    return [dict(vars(task)) for task in ended]
