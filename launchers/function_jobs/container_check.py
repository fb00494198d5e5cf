"""The part of `cluster check` that starts a container of the profile's runtime on each node."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobspec.finding import Finding, error, warning
from jobspec.runtime.base.procs import output

if TYPE_CHECKING:
    from jobspec.spec.site import ClusterProfile

KEPT_LINES = 40  # of what a container that did not start said


@dataclass(frozen=True)
class Start:
    """How a container starts on a node: flags for srun, else words before the command.

    `setup` are the profile's lines of bash before it. `timeout_s` bounds the import of its image, too.
    """

    flags: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    timeout_s: float = 300.0

    def argv(self, node: str) -> list[str]:
        step = ["srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}"] if self.flags else []
        command = [*step, *self.flags, *self.words, "python3", "--version"]
        return ["bash", "-c", "\n".join((*self.setup, 'exec "$@"')), "bash", *command]


def start_container(start: Start) -> dict[str, str]:
    """Ask a container on this node for its Python: `python`, else the `problem` in the runtime's words."""
    # A step inside a step inherits its binding to processors, and then finds none of its own.
    env = {
        key: value for key, value in os.environ.items() if not key.startswith(("SLURM_CPU_BIND", "SLURM_MEM"))
    }
    argv = start.argv(os.environ.get("SLURMD_NODENAME", ""))
    try:
        code, *streams = output(argv, start.timeout_s, env)
    except subprocess.TimeoutExpired:
        return {"problem": f"it has not started within {start.timeout_s:.0f} s"}
    said = [stream.decode("utf-8", "replace").strip() for stream in streams]
    version = said[0].rpartition("Python ")[2]
    if code == 0 and version:
        return {"python": version}
    lines = "\n".join(filter(None, reversed(said))).splitlines()[-KEPT_LINES:]
    return {"problem": "\n".join(lines) or f"it ended with exit code {code} and said nothing"}


def judge_container(profile: ClusterProfile, facts: Mapping[str, Any]) -> Iterator[Finding]:
    """A finding where the container did not start, or none was tried though runs here live in one."""
    runtime, started = profile.container.runtime, facts.get("started")
    place = {"path": "container.runtime", "node": str(facts["host"])}
    if runtime != "none" and started is None:
        why = "that a runtime is installed does not say that it works"
        fix = "name an image of yours by `--image`"
        yield warning("check.container", f"the check started no container of `{runtime}`", why, fix, **place)
    elif started and "problem" in started:
        from jobspec.triage import first_cause, scan_lines

        lines = started["problem"].splitlines()
        cause = first_cause(scan_lines(lines))
        known = cause is not None and not cause.generic
        why = cause.text if cause is not None and known else lines[-1]
        fix = (
            cause.fix if cause is not None and known else "start one by hand on a node, and read what it says"
        )
        yield error("check.container", f"a container of `{runtime}` did not start", why, fix, **place)
