"""Real agents for the tests: a run directory, `runtime.pyz` made from the tree, and processes.

Several agents on this machine stand for the nodes of a job: each gets the variables that srun would set.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jobspec.plan import CommandPlan, Plan, RayPlan, to_json
from jobspec.rendering.run_folder import build_runtime

TREE = Path(__file__).resolve().parents[2]
# What a caller may hand down: bash starts `&` with two signals ignored, and a program may have some blocked.
_CALLER = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGCHLD):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1})
os.execv(sys.argv[1], sys.argv[1:])
"""
HOSTILE_CALLER = (sys.executable, "-c", _CALLER)
RAY = RayPlan(port=26379, port_min=21000, port_max=21999, num_cpus=1, join_timeout_s=90.0)


def shell(text: str, name: str = "train", **options: Any) -> CommandPlan:
    return CommandPlan(name=name, argv=(text,), shell=True, **options)  # noqa: S604 - a field of the plan


@dataclass
class Run:
    """One run directory and the agents started in it."""

    root: Path
    plan: Plan
    token: str = field(default_factory=lambda: secrets.token_hex(32))
    job_id: str = field(default_factory=lambda: str(secrets.randbelow(10**9)))
    agents: list[subprocess.Popen[str]] = field(default_factory=list)
    steps: list[subprocess.Popen[str]] = field(default_factory=list)  # of services in containers of their own

    def agent(
        self,
        index: int = 0,
        *,
        prefix: Sequence[str] = (),
        python: str = sys.executable,
        env: Mapping[str, str] | None = None,
        service: str = "",
    ) -> subprocess.Popen[str]:
        """Start the agent of a node, or what a service's own step runs there; `prefix` wraps it, as `ip netns
        exec n1` does."""
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.root / "home"),
            "JOBSPEC_RUN_DIR": str(self.root),
            "JOBSPEC_TOKEN": self.token,
            "JOBSPEC_ATTEMPT": "1",
        }
        if self.plan.nodes > 1:
            names = ",".join(self.hosts)
            variables |= {
                "SLURM_NODEID": str(index),
                "SLURM_NNODES": str(self.plan.nodes),
                "SLURM_STEP_NODELIST": names,
                "SLURM_JOB_ID": self.job_id,
                "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
            }
        variables |= env or {}
        what = ["service", service] if service else ["node"]
        argv = [*prefix, python, str(self.root / "runtime.pyz"), *what, "--run-dir", str(self.root)]
        process = subprocess.Popen(
            argv,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        (self.steps if service else self.agents).append(process)
        return process

    @property
    def hosts(self) -> list[str]:
        return [f"127.0.0.{index + 2}" for index in range(self.plan.nodes)]

    def finish(self, process: subprocess.Popen[str] | None = None, timeout: float = 120) -> tuple[int, str]:
        """(exit status, output) of an agent, the head's by default."""
        process = process or self.agents[0]
        output, _ = process.communicate(timeout=timeout)
        return process.returncode, output

    @property
    def attempt(self) -> Path:
        return self.root / "attempts" / "1"

    def results(self) -> dict[str, Any]:
        return json.loads((self.attempt / "results.json").read_text())

    def events(self) -> list[dict[str, Any]]:
        path = self.attempt / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def rules(self) -> list[str]:
        return [finding["rule"] for finding in self.results()["findings"]]

    def wait_event(self, phase: str, event: str, timeout: float = 60, **match: Any) -> dict[str, Any]:
        """The first event that fits; fails when the head ends before."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            for row in self.events():
                if row["phase"] == phase and row["event"] == event and match.items() <= row.items():
                    return row
            time.sleep(0.02)
        raise AssertionError(f"no {phase} {event} in {self.events()}")

    def wait_file(self, path: Path, timeout: float = 60) -> str:
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if path.exists() and path.read_text():
                return path.read_text()
            time.sleep(0.02)
        raise AssertionError(f"{path} did not appear; {self.describe()}")

    def describe(self) -> str:
        """For a failed test: what the agents say."""
        told = self.results()["findings"] if (self.attempt / "results.json").exists() else self.events()[-3:]
        return f"agents: {[a.poll() for a in self.agents]}, {json.dumps(told, indent=1)}"

    def agent_pid(self, index: int = 0) -> int:
        """The inner agent's pid, from its pid file."""
        folder = Path(self.plan.node_local) / f"agents-{os.getuid()}"
        found = [json.loads(p.read_text()) for p in folder.glob(f"*.{index}.json")]
        return int(found[0]["pid"])

    def leftovers(self) -> list[str]:
        """Command lines of processes that carry this run's token: none may be left."""
        mark = f"JOBSPEC_RUN_DIR={self.root}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                try:
                    if mark in (folder / "environ").read_bytes().split(b"\0"):
                        found.append(
                            folder.name + " " + (folder / "cmdline").read_bytes().decode(errors="replace")
                        )
                except OSError:
                    continue
        return found

    def end(self) -> None:
        """For a failed test: end what it started, by pid."""
        for process in (*self.agents, *self.steps):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.communicate(timeout=30)
                except subprocess.TimeoutExpired:
                    process.kill()
        for row in self.leftovers():
            os.kill(int(row.split()[0]), signal.SIGKILL)


def make_run(root: Path, *commands: CommandPlan, **fields: Any) -> Run:
    """A run directory with a plan. Node-local storage is a short folder below it."""
    run_dir = root / "run"
    run_dir.mkdir(parents=True)
    (run_dir / "home").mkdir()
    plan = Plan("t", "command", "test", "slurm", "srun", commands=commands, node_local=str(root / "l"))
    plan = replace(plan, **fields)
    (run_dir / "plan.json").write_text(to_json(plan))
    (run_dir / "runtime.pyz").write_bytes(build_runtime())
    return Run(run_dir, plan)


@contextmanager
def running(root: Path, *commands: CommandPlan, **fields: Any) -> Iterator[Run]:
    run = make_run(root, *commands, **fields)
    try:
        yield run
    finally:
        run.end()
