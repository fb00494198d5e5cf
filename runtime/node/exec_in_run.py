"""`exec -- CMD`: a command in the environment of the run that is going on on this node."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, Mapping, Sequence

from jobspec.finding import fail
from jobspec.plan import Plan
from jobspec.runtime.base import own_folder, run_files
from jobspec.runtime.base.identity import ray_token, without_step
from jobspec.runtime.base.procs import started


def replace_process(plan: Plan, run_dir: Path, command: Sequence[str]) -> int:
    """Become `command`. Raises: JobspecError when no agent of this run is found, or the command is not."""
    env = environment(plan, run_dir)
    try:
        os.execvpe(command[0], list(command), env)
    except OSError as problem:
        raise fail("exec.command", f"`{command[0]}` cannot start: {problem.strerror}") from problem


def environment(plan: Plan, run_dir: Path) -> Dict[str, str]:
    """The driver's environment on this node.

    Secrets come from the agent's own environment, which only its user may read; the pid file has the rest.
    """
    record = find_agent(plan, run_dir)
    env = without_step(_environ(int(record["pid"])))
    token = env.pop("JOBSPEC_TOKEN", "")
    for name in set(plan.stage_secrets) - set(plan.secrets):
        env.pop(name, None)
    env.update(record["env"])
    if env.get("RAY_AUTH_MODE") == "token" and plan.upstream is None:
        keeper = env.get("JOBSPEC_KEPT_RAY", "")  # the agent whose Ray it is
        token = _environ(int(keeper)).get("JOBSPEC_TOKEN", "") if keeper else token
        env["RAY_AUTH_TOKEN"] = ray_token(token)
    # `ray` lies beside the Python that runs this, which a venv need not have put on PATH.
    folders = env.get("PATH", os.defpath).split(os.pathsep)
    env["PATH"] = os.pathsep.join(dict.fromkeys([*folders, str(Path(sys.executable).parent)]))
    for name in ("TERM", "LANG", "COLUMNS", "LINES"):
        if name in os.environ:
            env[name] = os.environ[name]
    return env


def find_agent(plan: Plan, run_dir: Path) -> Mapping[str, Any]:
    """The pid file of this run's newest live agent on this node. Raises: JobspecError."""
    folder = Path(plan.node_local) / f"agents-{os.getuid()}"
    with contextlib.suppress(FileNotFoundError):  # what a record says is run: nobody else may have made it
        own_folder.check_parent(folder.parent)
        own_folder.check(folder)
    for path in sorted(folder.glob("*.json"), key=_written, reverse=True):
        try:
            record: Mapping[str, Any] = json.loads(run_files.read_text(path))
        except (OSError, ValueError):
            continue
        # An agent that was killed leaves its file, and its pid to others.
        if record.get("run_dir") == str(run_dir) and 0 < started(int(record["pid"])) == record["started"]:
            return record
    raise fail(
        "exec.no-agent",
        f"no agent of this run is running on `{os.uname().nodename}`",
        f"no live process is named in `{folder}`",
        "run it while the job runs, on one of its nodes and in its container",
    )


def _written(path: Path) -> float:
    """When; 0 for the file of an agent that has ended at this moment."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _environ(pid: int) -> Dict[str, str]:
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError as problem:
        raise fail(
            "exec.permission", f"the environment of process {pid} cannot be read: {problem.strerror}"
        ) from problem
    pairs = (item.partition(b"=") for item in data.split(b"\0") if b"=" in item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
