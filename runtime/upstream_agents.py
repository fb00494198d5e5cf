"""Mode `upstream`: the agents of a run whose containers and Ray the framework's own script starts.

The script's setup command runs on every node before Ray starts there, and leaves the node's agent behind
(`setup`). Its driver command is the head's agent (`head`). The script chooses its head itself and removes
every SLURM_ variable: JOBSPEC_ variables carry the names, and a file of the attempt tells the nodes who
leads.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping, Optional, Sequence, Tuple

from jobspec.finding import fail
from jobspec.plan import Plan
from jobspec.runtime.base import procs
from jobspec.runtime.base.identity import Identity, node_paths
from jobspec.runtime.base.safe_write import write_text
from jobspec.runtime.base.upstream_marks import POLL_S


@dataclass(frozen=True)
class Place:
    """What the batch script says about this run, the same on every node."""

    run_dir: Path
    attempt: int
    hosts: Tuple[str, ...]  # as Slurm lists them
    job_id: str
    token: str

    @property
    def folder(self) -> Path:
        return self.run_dir / "attempts" / str(self.attempt)


def place(run_dir: Path, env: Mapping[str, str]) -> Place:
    """Raises: JobspecError when a variable of the batch script has not arrived."""
    names = ("JOBSPEC_ATTEMPT", "JOBSPEC_HOSTS", "JOBSPEC_JOB_ID", "JOBSPEC_TOKEN")
    missing = [name for name in names if not env.get(name)]
    if missing or not env["JOBSPEC_ATTEMPT"].isdecimal():
        raise fail(
            "runtime.environment",
            f"{', '.join(f'`{name}`' for name in missing or names[:1])} did not reach this container",
            "the batch script exports them, and the framework's script hands its environment on",
            "start the run by its `job.sbatch`",
        )
    hosts = tuple(env["JOBSPEC_HOSTS"].split())
    return Place(run_dir, int(env["JOBSPEC_ATTEMPT"]), hosts, env["JOBSPEC_JOB_ID"], env["JOBSPEC_TOKEN"])


def own_name(hosts: Sequence[str], name: str) -> str:
    """The name that Slurm has for the node that calls itself `name`. Raises: JobspecError. Pure."""
    for host in hosts:
        if host == name or host.split(".")[0] == name.split(".")[0]:
            return host
    raise fail(
        "runtime.nodelist",
        f"host name `{name}` is not among the nodes of this job: {' '.join(hosts)}",
        "every agent must know its place among the nodes",
    )


def identity(at: Place, name: str, head: str, address: str = "") -> Identity:
    """One agent among the agents: the head first, the others as Slurm lists them. Pure."""
    hosts = (head, *(host for host in at.hosts if host != head))
    return Identity(at.run_dir, at.attempt, hosts.index(name), hosts, at.token, at.job_id, address)


# The head.


def head(plan: Plan, run_dir: Path) -> int:
    """The driver command of the script: the head's agent; the exit status of the job."""
    from jobspec.runtime.head.phases import run_head

    env = dict(os.environ)
    at = place(run_dir, env)
    name = own_name(at.hosts, socket.gethostname())
    who = identity(at, name, name)
    write_text(at.folder / "head", f"{name} {_address(name)}\n")  # attach.sh reads it too
    return procs.guard(lambda: run_head(plan, who, env))


def _address(name: str) -> str:
    """The address by which Ray's other nodes reach this one, else the one that its name has."""
    with contextlib.suppress(OSError):
        return Path("/tmp/ray/ray_current_cluster").read_text().rpartition(":")[0].strip()
    with contextlib.suppress(OSError):
        return socket.gethostbyname(name)
    return ""


# The other nodes.


def setup(plan: Plan, run_dir: Path) -> int:
    """The setup command of the script: leave this node's agent in the background. Idempotent.

    The script runs it again before each try to start Ray; the first agent stays.
    """
    env = dict(os.environ)
    at = place(run_dir, env)
    name = own_name(at.hosts, socket.gethostname())
    task = _grandparent()
    lock = _lock(plan, at)
    if lock is None:
        sys.stderr.write("jobspec: the agent of this node runs already\n")
        return 0
    sys.stderr.flush()
    if os.fork() != 0:
        return 0
    _detach()
    status = 1
    try:
        status = _wait_and_work(plan, at, name, env, task)
    except Exception:  # noqa: BLE001 - the process ends here; the head shows the end of this log
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _wait_and_work(plan: Plan, at: Place, name: str, env: Mapping[str, str], task: int) -> int:
    from jobspec.runtime.node.worker import run_worker

    leader = _await_head(at.folder, task)
    if leader is None or leader[0] == name:
        return 0  # nobody will call, or this is the head: the driver command is its agent
    who = identity(at, name, *leader)
    return procs.guard(lambda: run_worker(plan, who, env))


def _await_head(folder: Path, task: int) -> Optional[Tuple[str, str]]:
    """The head's name and address once it has started; None when this node's task has ended before."""
    while procs.alive(task):
        with contextlib.suppress(OSError, ValueError):
            os.listdir(folder)  # noqa: PTH208 - makes a network file system look anew
            name, _, address = (folder / "head").read_text().strip().partition(" ")
            return name, address
        time.sleep(POLL_S)
    return None


def _grandparent() -> int:
    """The script's own shell on this node: it runs `bash setup_command.sh`, which runs this."""
    table = procs.process_table()
    parent = table.get(os.getppid())
    return parent.parent if parent is not None else os.getppid()


def _lock(plan: Plan, at: Place) -> Optional[int]:
    """An open, locked file of this attempt on this node; None when another agent holds it."""
    paths = node_paths(plan, identity(at, at.hosts[0], at.hosts[0]))
    paths.agents.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(paths.pid_file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file


def _detach() -> None:
    """Leave the script's session: what it sends to its process group is not meant for the agent."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)  # stdout may be the script's own log, which must close when the script ends
