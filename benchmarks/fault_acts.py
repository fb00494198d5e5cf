"""What `benchmarks/faults.py` does to a run, and to the nodes, processes and controller around it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.kits import quota_kit
from tests.slurm.lab import Lab, await_true

READ_ONLY = "mount --bind RUNS RUNS && mount -o remount,bind,ro RUNS"
AWAY = "mount -t tmpfs tmpfs RUNS"
BACK = "umount -l RUNS"
LOCAL = "/tmp/jobspec-root"  # `node_local` of the test cluster's profile for root
FULL = f"dd if=/dev/zero of={LOCAL}/fill bs=1M 2>/dev/null; true"
UNDO = f"umount -l {LOCAL}; umount -l /tmp/other; rm -rf /tmp/other /tmp/other.img"


@dataclass
class Trial:
    """One run on the test cluster while something is done to it."""

    lab: Lab
    run_id: str
    run_dir: Path
    job: str
    nodes: list[str]
    undo: list[Callable[[], object]] = field(default_factory=list)
    user: str = "root"

    @property
    def head(self) -> str:
        return self.nodes[0]

    @property
    def worker(self) -> str:
        return self.nodes[-1]

    def node(self, where: str) -> str:
        return self.head if where == "head" else self.worker

    def pids(self, where: str, what: str) -> list[str]:
        """Processes of a node by what they are."""
        listing = self.lab.cluster.run(self.node(where), ["ps", "-eo", "pid=,ppid=,args="]).stdout
        rows = [line.split(None, 2) for line in listing.splitlines()]
        if what in ("agent", "guard"):
            mine = {
                pid: parent for pid, parent, args in rows if "runtime.pyz node" in args and "srun" not in args
            }
            return [pid for pid, parent in mine.items() if (parent in mine) == (what == "agent")]
        words = {
            "driver": ": fault-driver",
            "gcs": "gcs_server",
            "raylet": "raylet/raylet",
            "batch": "slurm_script",
            "batch step": ".batch]",
        }
        if what == "srun":
            return [pid for pid, _, args in rows if args.split()[0].endswith("srun")]
        return [pid for pid, _, args in rows if words[what] in args]


Act = Callable[[Trial], object]


def kill(what: str, where: str = "head", signal: str = "KILL") -> Act:
    def act(trial: Trial) -> None:
        await_true(lambda: trial.pids(where, what) != [], f"{what} on {trial.node(where)}", 20)
        pids = trial.pids(where, what)
        trial.lab.cluster.run(trial.node(where), ["kill", f"-{signal}", *pids])

    return act


def pause(what: str, seconds: float, where: str = "head") -> Act:
    def act(trial: Trial) -> None:
        kill(what, where, "STOP")(trial)
        time.sleep(seconds)
        kill(what, where, "CONT")(trial)
        finish(trial)

    return act


def batch_and_srun(trial: Trial) -> None:
    """Both die before Slurm can kill srun's child, whose SIGKILL of the step would come before the TERM."""
    slurm, srun = (
        trial.pids("head", "batch step"),
        trial.pids("head", "srun")[:1],
    )  # the child has a later pid
    trial.lab.cluster.run(trial.head, ["kill", "-STOP", *slurm])
    trial.lab.cluster.run(trial.head, ["kill", "-KILL", *trial.pids("head", "batch"), *srun])
    time.sleep(0.6)
    trial.lab.cluster.run(trial.head, ["kill", "-CONT", *slurm])


def power(where: str) -> Act:
    def act(trial: Trial) -> None:
        node = trial.node(where)
        trial.lab.cluster.kill(node, silently=True)
        trial.undo.append(lambda: trial.lab.cluster.revive(node))

    return act


def link(where: str, seconds: float, times: int = 1, then: bool = True) -> Act:
    def act(trial: Trial) -> None:
        node = trial.node(where)
        for _ in range(times):
            trial.lab.cluster.link(node, up=False)
            time.sleep(seconds)
            trial.lab.cluster.link(node, up=True)
            time.sleep(seconds if times > 1 else 4)
        if then:
            finish(trial)

    return act


def local_disk(node: str, *commands: Sequence[str]) -> Callable[[Lab], Callable[[], object]]:
    """Another disk at `LOCAL` of a node; returns what takes it away again."""

    def before(lab: Lab) -> Callable[[], object]:
        for argv in (["mkdir", "-p", "/tmp/other"], *commands):
            done = lab.cluster.run(node, list(argv))
            assert done.returncode == 0, done.stderr
        return lambda: lab.cluster.run(node, ["sh", "-c", UNDO])

    return before


def quota_disk(node: str, size: int) -> Callable[[Lab], Callable[[], object]]:
    """Of a node: a quota on a disk that has room for what is staged."""
    made = quota_kit.commands(Path("/tmp/other.img"), Path("/tmp/other"), size, disk=4 << 30)
    return local_disk(node, *made, ["mount", "--bind", "/tmp/other/limited", LOCAL])


def tmpfs_disk(node: str, size: int) -> Callable[[Lab], Callable[[], object]]:
    return local_disk(node, ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", LOCAL])


def finish(trial: Trial) -> None:
    (trial.run_dir / "finish").touch()


def scancel(*words: str, step: bool = False) -> Act:
    return lambda trial: trial.lab.slurm("scancel", *words, trial.job + (".0" if step else ""))


def twice(act: Act) -> Act:
    return lambda trial: (act(trial), act(trial))


def jobspec_cancel(trial: Trial) -> None:
    trial.lab.jobspec("cancel", trial.run_id)


def suspend(trial: Trial) -> None:
    trial.lab.slurm("scontrol", "suspend", trial.job)
    time.sleep(15)
    trial.lab.slurm("scontrol", "resume", trial.job)
    time.sleep(5)
    finish(trial)


def requeue(trial: Trial) -> None:
    trial.lab.slurm("scontrol", "requeue", trial.job)
    time.sleep(3)
    finish(trial)


def no_act(trial: Trial) -> None:
    """The command itself is the fault, or the clock."""


def on(where: str, command: str, undo: str = "", then: bool = False) -> Act:
    """A shell command on a node; `RUNS` in it is the folder of all runs."""

    def act(trial: Trial) -> None:
        node, runs = trial.node(where), str(trial.lab.runs)
        done = trial.lab.cluster.run(node, ["sh", "-c", command.replace("RUNS", runs)])
        assert done.returncode == 0, done.stderr
        if undo:
            trial.undo.append(lambda: trial.lab.cluster.run(node, ["sh", "-c", undo.replace("RUNS", runs)]))
        if then:
            time.sleep(1)
            finish(trial)

    return act


def away(where: str, seconds: float) -> Act:
    """The node sees an empty folder where the runs should be, for a while."""

    def act(trial: Trial) -> None:
        on(where, AWAY)(trial)
        time.sleep(seconds)
        on(where, BACK)(trial)
        finish(trial)

    return act


def controller(trial: Trial, meanwhile: Act = no_act) -> None:
    """slurmctld is stopped for some seconds, then comes back with its state."""
    cluster = trial.lab.cluster
    cluster.run("ctl", ["pkill", "-TERM", "-x", "slurmctld"])
    meanwhile(trial)
    time.sleep(8)
    start_controller(trial.lab)


def start_controller(lab: Lab) -> None:
    cluster, out = lab.cluster, lab.cluster.lab / "log/slurmctld.out"
    cluster.run("ctl", ["sh", "-c", f"setsid slurmctld -D >>{out} 2>&1 </dev/null &"])
    await_true(lambda: cluster.run("ctl", ["timeout", "5", "sinfo", "-h"]).returncode == 0, "slurmctld", 60)


def controller_then(act: Act) -> Act:
    return lambda trial: (controller(trial), act(trial))


def await_unpacking(trial: Trial) -> None:
    """Until the last node has begun to unpack the image."""
    there = ["test", "-d", f"/tmp/enroot-0/data/pyxis_jobspec-{trial.run_id}_1"]
    await_true(lambda: trial.lab.cluster.run(trial.worker, there).returncode == 0, "the unpacking", 60)


def other_job(trial: Trial) -> None:
    """A second run of the same user on the same nodes loses its agents; the first one goes on."""
    lab = trial.lab
    spec = lab.command_spec("beside", ["bash", "-c", "sleep 600"], nodes=2, resources={"exclusive": False})
    run = lab.submit(spec)
    lab.await_phase(run["run_dir"], "driver")
    lab.slurm("scancel", "--signal=KILL", run["job_id"])
    lab.await_end(run["job_id"])
    finish(trial)
