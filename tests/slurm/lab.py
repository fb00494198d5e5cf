"""What the Slurm tests say about the test cluster: its site profile, specs, `jobspec` on its login node.

Everything is done as a user does it: files on the shared folder, commands in `ctl`, nothing imported.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.slurm import cluster as harness
from tests.slurm import rootfs
from tests.slurm.machine import CACHE, read_only_paths

PYTHON = Path(sys.prefix) / "bin/python"
PARTITIONS = ("main", "low", "high")
# Ray starts a Python for each CPU of a node before anything asks for one.
FEW_CPUS = {"cpus_per_node": 2}


def profile_text(
    cluster: harness.Cluster,
    name: str,
    runtime: str = "none",
    partition: str = "main",
    remap_root: bool | None = None,
) -> str:
    """A site profile for the test cluster, as its administrator would write it."""
    shared = cluster.shared
    remapped = "" if remap_root is None else f", remap_root: {str(remap_root).lower()}"
    return f"""\
version: 1
name: {name}
description: the test cluster, containers by {runtime}
scheduler: slurm
slurm: {{partition: {partition}, gpus: none}}
container: {{runtime: {runtime}{remapped}}}
paths:
  runs: {shared}/runs
  hf_home: {shared}/hf
  scratch: {shared}/scratch
  node_local: /tmp/jobspec-${{user}}
network: {{subnet: 10.77.0.0/24}}
node: {{cpus: {cluster.options.cpus}, memory: {cluster.options.memory_mib}M}}
limits: {{max_nodes: {cluster.options.nodes}, max_array: 2000}}
"""


class Lab:
    """A running test cluster with site profiles `lab` (bare nodes), `lab-RUNTIME`, `lab-low`, `lab-high`."""

    def __init__(self, cluster: harness.Cluster) -> None:
        self.cluster = cluster
        self.shared = cluster.shared
        self.runs = cluster.shared / "runs"
        self.clusters = cluster.shared / "clusters"
        self.python = PYTHON

    def prepare(self) -> None:
        """Shared folders, profiles, and the programs that specs call."""
        for folder in (self.runs, self.shared / "hf", self.shared / "scratch", self.clusters):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o1777)
        for runtime in ("none", "pyxis", "charliecloud", "bubblewrap", "oci", "podman"):
            self.add_profile("lab" if runtime == "none" else f"lab-{runtime}", runtime)
        for partition in ("low", "high"):
            self.add_profile(f"lab-{partition}", partition=partition)

    def add_profile(
        self,
        name: str,
        runtime: str = "none",
        partition: str = "main",
        more: str = "",
        remap_root: bool | None = None,
    ) -> None:
        text = profile_text(self.cluster, name, runtime, partition, remap_root) + more
        (self.clusters / f"{name}.yaml").write_text(text)

    @property
    def mounts(self) -> list[tuple[Path, bool]]:
        """Folders that a container must see at the same path: the shared one, and where Python lies."""
        return [(self.cluster.lab, False), *((path, True) for path in read_only_paths())]

    def image(self, runtime: str) -> str:
        """The image for a container runtime: a folder, for `pyxis` a file, for `oci` a bundle."""
        if runtime == "pyxis":
            return str(rootfs.make_squashfs(CACHE))
        root = rootfs.make_rootfs(CACHE)
        rootfs.make_mount_points(root, [path for path, _ in self.mounts])
        if runtime != "oci":
            return str(root)
        bundle = self.shared / "bundle"
        if not bundle.exists():
            rootfs.make_bundle(bundle, root, [*self.mounts, (Path("/tmp"), False), (Path("/sys"), False)])
        return str(bundle)

    def container(self, runtime: str) -> dict[str, Any]:
        """The `container` section of a spec for this cluster."""
        if runtime == "none":
            return {"python": str(PYTHON)}
        found: dict[str, Any] = {"image": self.image(runtime), "python": str(PYTHON)}
        if runtime != "oci":  # a bundle brings its own mounts
            found["mounts"] = [
                {
                    "source": str(path),
                    "target": str(path),
                    "read_only": read_only and runtime != "charliecloud",
                }
                for path, read_only in self.mounts
            ]
        return found

    # specs

    def write_spec(self, name: str, spec: Mapping[str, Any], runtime: str = "none") -> Path:
        """A spec on the shared folder. JSON is YAML."""
        full = {"version": 1, "name": name, "container": self.container(runtime), **spec}
        path = self.shared / f"{name}.yaml"
        path.write_text(json.dumps(full, indent=1))
        path.chmod(0o644)
        return path

    def command_spec(
        self,
        name: str,
        argv: Sequence[str],
        *,
        nodes: int = 1,
        mode: str = "srun",
        runtime: str = "none",
        **sections: Any,
    ) -> Path:
        """A spec of framework `command`. `srun` mode needs no Ray and so costs a second."""
        launch = {"mode": mode, **sections.pop("launch", {})}
        resources = {"nodes": nodes, "time": "00:10:00", **FEW_CPUS, **sections.pop("resources", {})}
        train = {"command": list(argv), **sections.pop("train", {})}
        spec = {"framework": "command", "resources": resources, "launch": launch, "train": train, **sections}
        return self.write_spec(name, spec, runtime)

    # jobspec on the login node

    def jobspec(
        self,
        *argv: object,
        user: str = "root",
        env: Mapping[str, str] | None = None,
        cluster: str = "",
        timeout: float = 240.0,
    ) -> subprocess.CompletedProcess[str]:
        return self.cluster.run(
            "ctl", ["jobspec", *map(str, argv)], user=user, env=self._env(env, cluster), timeout=timeout
        )

    def popen(
        self, *argv: object, user: str = "root", env: Mapping[str, str] | None = None, cluster: str = ""
    ) -> subprocess.Popen[str]:
        return self.cluster.popen("ctl", ["jobspec", *map(str, argv)], user=user, env=self._env(env, cluster))

    def _env(self, env: Mapping[str, str] | None, cluster: str) -> dict[str, str]:
        return {"JOBSPEC_CLUSTER": cluster or "lab", **(env or {})}

    def submit(self, spec: Path, *more: object, **how: Any) -> dict[str, Any]:
        """`jobspec submit --json`; fails the test with what it printed."""
        done = self.jobspec("submit", spec, "--json", *more, **how)
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def status(self, run: str, **how: Any) -> dict[str, Any]:
        done = self.jobspec("status", run, "--json", **how)
        assert done.returncode == 0, done.stdout + done.stderr
        row: dict[str, Any] = json.loads(done.stdout)[0]
        return row

    def await_state(self, run: str, *states: str, timeout: float = 120.0) -> dict[str, Any]:
        """Poll `jobspec status` until the scheduler's state is one of `states`."""
        last: dict[str, Any] = {}

        def reached() -> bool:
            last.update(self.status(run))
            return last["state"] in states

        await_true(reached, f"state {' or '.join(states)}", timeout, lambda: str(last))
        return last

    def report(self, run: str, **how: Any) -> tuple[int, dict[str, Any]]:
        """Exit code and content of `jobspec report --format json`."""
        done = self.jobspec("report", run, "--format", "json", **how)
        assert done.stdout.startswith("{"), done.stdout + done.stderr
        return done.returncode, json.loads(done.stdout)

    def passed(self, spec: Path, timeout: float = 300.0) -> tuple[dict[str, Any], dict[str, Any]]:
        """Submit a spec and expect `Pass`: what `submit` said, and the report."""
        made = self.submit(spec)
        assert self.await_end(made["job_id"], timeout) == ("COMPLETED", "0:0")
        code, report = self.report(made["run_id"])
        assert (code, report["result"]) == (0, "Pass"), report["deliverables"]
        return made, report

    # evidence

    @staticmethod
    def events(run_dir: str, attempt: int = 1) -> list[dict[str, Any]]:
        path = Path(run_dir) / f"attempts/{attempt}/events.jsonl"
        if not path.exists():
            return []
        return [
            json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")
        ]

    @staticmethod
    def results(run_dir: str, attempt: int = 1) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((Path(run_dir) / f"attempts/{attempt}/results.json").read_text())
        return found

    def head_log(self, run_dir: str, name: str, attempt: int = 1) -> str:
        """A command's log on the node that coordinated the attempt."""
        head = self.results(run_dir, attempt)["nodes"][0]["name"]
        return (Path(run_dir) / f"attempts/{attempt}/logs/{head}/{name}.log").read_text()

    def await_phase(self, run_dir: str, phase: str, event: str = "start", timeout: float = 120.0) -> None:
        """Until the head has written this event of this phase."""
        await_true(
            lambda: any((e["phase"], e["event"]) == (phase, event) for e in self.events(run_dir)),
            f"{phase} {event}",
            timeout,
            lambda: tail(Path(run_dir)),
        )

    # Slurm

    def slurm(self, *argv: str) -> str:
        done = self.cluster.run("ctl", list(argv), timeout=30)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def job_state(self, job_id: str) -> tuple[str, str]:
        """(state, exit code) as accounting has it, of the last attempt."""
        rows = self.slurm("sacct", "-X", "-n", "-P", "-D", "-j", job_id, "-o", "State,ExitCode").splitlines()
        state, code = rows[-1].split("|")
        return state.split()[0], code

    def await_end(self, job_id: str, timeout: float = 180.0) -> tuple[str, str]:
        """Until the queue holds the job no more; returns `job_state`."""
        await_true(
            lambda: job_id not in self.slurm("squeue", "-h", "-o", "%A").split(),
            f"the end of job {job_id}",
            timeout,
            lambda: self.slurm("squeue"),
        )
        live = ("RUNNING", "PENDING", "COMPLETING", "REQUEUED")
        await_true(lambda: self.job_state(job_id)[0] not in live, "accounting to close the job", 60)
        return self.job_state(job_id)

    def await_out_of_running(self, job_id: str, timeout: float = 120.0) -> None:
        live = ("RUNNING", "SUSPENDED")
        await_true(
            lambda: self.slurm("squeue", "-h", "-j", job_id, "-o", "%T").strip() not in live,
            "the end",
            timeout,
        )

    @contextmanager
    def read_only(self, node: str, folder: Path) -> Iterator[None]:
        """The folder as it is after an error of its storage, on this node alone."""
        bind = f"mount --bind {folder} {folder} && mount -o remount,bind,ro {folder}"
        assert self.cluster.run(node, ["sh", "-c", bind]).returncode == 0
        try:
            yield
        finally:
            self.cluster.run(node, ["umount", "-l", str(folder)])

    @contextmanager
    def occupied(self, *, nodes: int = 0, partition: str = "main") -> Iterator[str]:
        """Another user's job on every node."""
        count = nodes or self.cluster.options.nodes
        job = self.slurm(
            "sbatch",
            "--parsable",
            f"-N{count}",
            "--exclusive",
            "-p",
            partition,
            "-o",
            "/dev/null",
            "--wrap",
            "sleep 600",
        ).strip()
        try:
            await_true(
                lambda: "RUNNING" in self.slurm("squeue", "-h", "-j", job, "-o", "%T"), "the other job", 30
            )
            yield job
        finally:
            self.slurm("scancel", job)

    # after each test

    def settle(self) -> None:
        """Cancel what still runs, bring dead nodes back, and prove that no process was left on any node."""
        self.cluster.run("ctl", ["scancel", "--me", "--full"], timeout=30)
        self.cluster.run("ctl", ["scancel", "--user=alice"], timeout=30)
        for node in self.cluster.nodes:
            if not self.cluster.alive(node):
                self.cluster.revive(node)
        await_true(
            lambda: not self.slurm("squeue", "-h"), "an empty queue", 60, lambda: self.slurm("squeue", "-l")
        )
        for node in self.cluster.nodes:
            await_true(
                lambda n=node: not self.cluster.processes(n),  # type: ignore[misc]
                f"no process left on {node}",
                60,
                lambda n=node: "\n".join(self.cluster.processes(n)),  # type: ignore[misc]
            )


def await_true(
    holds: Callable[[], bool], what: str, timeout: float, show: Callable[[], str] = lambda: ""
) -> None:
    """Poll until `holds`, or fail the test with what is missing and what `show` says."""
    began = time.monotonic()
    while True:
        asked = time.monotonic()
        if holds():
            return
        if asked > began + timeout:
            raise AssertionError(f"waited {timeout:.0f} s for {what}\n{show()}")
        time.sleep(max(0.2, time.monotonic() - asked))  # asking must not take the processor from the job


def end(process: subprocess.Popen[str]) -> str:
    """Ctrl-C for a followed command, and everything it printed."""
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    return out + err


def tail(run_dir: Path) -> str:
    """The last lines of everything a run has written, for a failed test."""
    logs = [
        *run_dir.glob("job*.log"),
        *run_dir.glob("attempts/*/logs/**/*.log"),
        *run_dir.glob("attempts/*/events.jsonl"),
    ]
    return "\n".join(
        f"--- {log}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-40:]) for log in logs
    )
