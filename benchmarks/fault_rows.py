"""The rows of `benchmarks/faults.py`: what is done to a run, at which moment, and how it should end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.slurm.lab import Lab, await_true

# The command of every run: it saves when it is told to end, and ends well when it is let go.
DRIVER = """\
: fault-driver
trap 'sleep 0.5; echo saved >>$JOBSPEC_SCRATCH/saved.txt; exit 143' TERM
echo began >$JOBSPEC_SCRATCH/saved.txt
%s
until [ -e $JOBSPEC_RUN_DIR/finish ]; do sleep 0.1; done
"""
SAVING = "touch $JOBSPEC_CHECKPOINT_DIR/saving; sleep 3; echo 7 >$JOBSPEC_CHECKPOINT_DIR/step"
MANY = """\
mkdir $JOBSPEC_SCRATCH/many; cd $JOBSPEC_SCRATCH/many
for i in {1..4000}; do printf %0100d $i >$i.txt; done
exit 0
"""
LIVING = {"artifacts": {"collect": ["saved.txt", "many/*.txt"], "max_size": "1G"}}


@dataclass
class Trial:
    """One run on the test cluster while something is done to it."""

    lab: Lab
    run_id: str
    run_dir: Path
    job: str
    nodes: list[str]
    undo: list[Callable[[], object]] = field(default_factory=list)

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
        }
        if what == "srun":
            return [pid for pid, _, args in rows if args.split()[0].endswith("srun")]
        return [pid for pid, _, args in rows if words[what] in args]


Act = Callable[[Trial], object]


@dataclass(frozen=True)
class Row:
    """`state` and `cause` are regular expressions: of Slurm's last word, and of the report's first cause."""

    fault: str
    moment: str
    act: Act
    state: str
    cause: str
    kept: bool = True  # the head's artifact must be there
    extra: Mapping[str, Any] = field(default_factory=dict)
    script: str = ""
    alone: bool = False

    @property
    def name(self) -> str:
        return f"{self.fault} / {self.moment}"


def kill(what: str, where: str = "head", signal: str = "KILL") -> Act:
    def act(trial: Trial) -> None:
        await_true(lambda: trial.pids(where, what) != [], f"{what} on {trial.node(where)}", 20)
        pids = trial.pids(where, what)
        trial.lab.cluster.run(trial.node(where), ["kill", f"-{signal}", *pids])

    return act


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
    """slurmctld is down for some seconds, then comes back with its state."""
    cluster = trial.lab.cluster
    cluster.run("ctl", ["pkill", "-KILL", "-x", "slurmctld"])
    meanwhile(trial)
    time.sleep(8)
    out = cluster.lab / "log/slurmctld.out"
    cluster.run("ctl", ["sh", "-c", f"setsid slurmctld -D >>{out} 2>&1 </dev/null &"])
    await_true(lambda: cluster.run("ctl", ["timeout", "5", "sinfo", "-h"]).returncode == 0, "slurmctld", 60)


def controller_then(act: Act) -> Act:
    return lambda trial: (controller(trial), act(trial))


READ_ONLY = "mount --bind RUNS RUNS && mount -o remount,bind,ro RUNS"
AWAY = "mount -t tmpfs tmpfs RUNS"
BACK = "umount -l RUNS"
FULL = "dd if=/dev/zero of=/tmp/jobspec-root/fill bs=1M 2>/dev/null; true"
LOST = r"node `{worker}` left"
CANCEL = r"cancel|SIGTERM|SIGINT"
BY_KILL = r"{head}|killed|head"
RAY = {"mode": "ray"}


def rows() -> list[Row]:
    """All of them. `{head}` and `{worker}` in a cause stand for the names of the run's nodes."""
    found: list[Row] = []

    def add(fault: str, moments: str, act: Act, state: str, cause: str, **more: Any) -> None:
        found.extend(Row(fault, moment, act, state, cause, **more) for moment in moments.split(","))

    busy = "staging,training,saving,collecting"
    add("agent of a worker killed", "ray bring-up,ray training", kill("agent", "worker"), "FAILED", LOST)
    add("agent of a worker killed", busy, kill("agent", "worker"), "FAILED", LOST)
    add("guard of a worker killed", "training", kill("guard", "worker"), "FAILED", LOST)
    add("agent of a worker stopped", "training", kill("agent", "worker", "STOP"), "FAILED", LOST)
    add("agent of the head killed", "staging,training", kill("agent"), "FAILED", BY_KILL, kept=False)
    add("guard of the head killed", "training", kill("guard"), "FAILED|CANCELLED", BY_KILL, kept=False)
    add("agent of the head stopped", "training", kill("agent", "head", "STOP"), "FAILED", BY_KILL, kept=False)
    add(
        "driver killed",
        "training,ray training,saving",
        kill("driver"),
        "FAILED",
        r"signal 9|exited with 137|was ended|killed",
    )
    add("driver of a worker killed", "training", kill("driver", "worker"), "FAILED", r"signal 9|137|killed")
    add(
        "srun killed", "training", kill("srun"), "FAILED|CANCELLED", r"cancel|srun|SIGTERM|killed", kept=False
    )
    add("batch script killed", "training,saving", kill("batch"), "FAILED|CANCELLED", r"cancel|SIGTERM|killed")
    add("gcs killed", "ray bring-up,ray training", kill("gcs"), "FAILED", r"Ray|GCS|gcs|ray")
    add("gcs stopped", "ray bring-up", kill("gcs", "head", "STOP"), "FAILED", r"Ray|GCS|gcs|ray")
    add("raylet of the head killed", "ray bring-up,ray training", kill("raylet"), "FAILED", r"Ray|raylet|ray")
    add("raylet of a worker killed", "ray training", kill("raylet", "worker"), "FAILED", r"Ray|raylet|ray")
    add("worker without power", f"{busy},ray bring-up,ray training", power("worker"), "FAILED", LOST)
    add(
        "head without power",
        "staging,training,collecting",
        power("head"),
        "NODE_FAIL",
        r"NODE_FAIL|node",
        kept=False,
    )
    add("link of a worker away 5 s", "training", link("worker", 5), "COMPLETED", "^$")
    add("link of the head away 5 s", "training", link("head", 5), "COMPLETED", "^$")
    add("link of a worker flaps, 5 times 2 s", "training", link("worker", 2, 5), "COMPLETED", "^$")
    add(
        "link of a worker away 60 s",
        "training,staging",
        link("worker", 60, then=False),
        "FAILED|NODE_FAIL",
        LOST,
    )
    add(
        "link of the head away 60 s",
        "training",
        link("head", 60, then=False),
        "NODE_FAIL|FAILED",
        r"NODE_FAIL|node",
        kept=False,
    )
    add("scancel", f"{busy},ray bring-up,ray training", scancel(), "CANCELLED|FAILED|COMPLETED", CANCEL)
    add(
        "scancel --batch --signal=TERM", busy, scancel("--batch", "--signal=TERM"), "FAILED|COMPLETED", CANCEL
    )
    add("scancel --batch --signal=INT", "training", scancel("--batch", "--signal=INT"), "FAILED", CANCEL)
    add(
        "scancel --full --signal=TERM",
        "training,saving",
        scancel("--full", "--signal=TERM"),
        "FAILED",
        CANCEL,
    )
    add(
        "scancel --full --signal=KILL",
        "training",
        scancel("--full", "--signal=KILL"),
        "FAILED|CANCELLED",
        r"cancel|killed",
        kept=False,
    )
    add("scancel --signal=TERM", "training", scancel("--signal=TERM"), "FAILED", CANCEL)
    add("scancel --signal=USR1", "training", scancel("--signal=USR1"), "FAILED", r"time limit")
    add("scancel --batch, twice", "training", twice(scancel("--batch", "--signal=TERM")), "FAILED", CANCEL)
    add(
        "scancel of the step",
        "training",
        scancel(step=True),
        "FAILED|CANCELLED",
        r"^(?!.*left).*(cancel|killed)",
        kept=False,
    )
    add("jobspec cancel", "training,staging", jobspec_cancel, "CANCELLED|FAILED", CANCEL)
    limit = {"resources": {"time": "00:01:00"}}
    add(
        "time limit, warned 45 s before",
        "training",
        no_act,
        "FAILED|TIMEOUT",
        "time limit",
        extra={**limit, "launch": {"requeue": {"grace": 45}}},
    )
    add(
        "time limit, not warned",
        "training",
        no_act,
        "TIMEOUT",
        "time limit",
        kept=False,
        extra={**limit, "launch": {"requeue": {"grace": 0}}},
    )
    again = {"launch": {"requeue": {"max_attempts": 2}}}
    add("scontrol requeue", "training", requeue, "COMPLETED", "^$", extra=again)
    add("suspended for 15 s", "training", suspend, "COMPLETED", "^$")
    add("slurmctld down for 8 s", "training", controller_then(finish), "COMPLETED", "^$", alone=True)
    add(
        "slurmctld down, then cancel",
        "training",
        controller_then(jobspec_cancel),
        "CANCELLED",
        CANCEL,
        alone=True,
    )
    add(
        "scancel as slurmctld is down",
        "training",
        lambda trial: (controller(trial, jobspec_cancel), jobspec_cancel(trial)),
        "CANCELLED",
        CANCEL,
        alone=True,
    )
    for where, node in (("the head", "head"), ("a worker", "worker")):
        add(
            f"runs read-only on {where}",
            "training",
            on(node, READ_ONLY, BACK, then=True),
            "FAILED|COMPLETED",
            r"Read-only|written|results",
            kept=False,
        )
        add(f"runs away from {where} for 5 s", "training", away(node, 5), "COMPLETED", "^$")
        add(
            f"node disk of {where} full",
            "training",
            on(node, FULL, "rm -f /tmp/jobspec-root/fill", then=True),
            "FAILED|COMPLETED",
            r"^$|No space",
            script="small-disk",
        )
    for code, said in ((1, "exited with 1"), (5, "exited with 5"), (42, "exited with 42")):
        add(f"exit {code}", "training", no_act, f"FAILED {code}:0", said, script=f"exit {code}")
    add(
        "segmentation fault",
        "training",
        no_act,
        "FAILED 139:0",
        r"signal 11|139|egmentation",
        script="kill -SEGV $$",
    )
    add(
        "kill -9 of itself",
        "training",
        no_act,
        "FAILED 137:0",
        r"signal 9|137|[Kk]illed",
        script="kill -KILL $$",
    )
    add(
        "program missing",
        "training",
        no_act,
        "FAILED 127:0",
        r"not found|127",
        script="no-such-program; exit 127",
    )
    add(
        "container does not start",
        "training",
        no_act,
        "FAILED",
        r"bwrap|container|execvp|No such",
        kept=False,
        script="container",
    )
    add("other job of the node killed", "training", other_job, "COMPLETED", "^$", alone=True)
    return found


def other_job(trial: Trial) -> None:
    """A second run of the same user on the same nodes loses its agents; the first one goes on."""
    lab = trial.lab
    spec = lab.command_spec("beside", ["bash", "-c", "sleep 600"], nodes=2, resources={"exclusive": False})
    run = lab.submit(spec)
    lab.await_phase(run["run_dir"], "driver")
    lab.slurm("scancel", "--signal=KILL", run["job_id"])
    lab.await_end(run["job_id"])
    finish(trial)


def sections(row: Row, lab: Lab) -> tuple[str, dict[str, Any]]:
    """The command's script and the sections of the spec for a row's moment."""
    script = {"saving": SAVING, "collecting": MANY}.get(row.moment, "")
    more: dict[str, Any] = {**LIVING, "resources": {"exclusive": row.fault != "other job of the node killed"}}
    if row.moment == "staging":
        more["model"] = {"path": str(lab.shared / "model")}
    if row.moment.startswith("ray"):
        more["mode"] = "ray"
    for key, value in row.extra.items():
        more[key] = {**more.get(key, {}), **value}
    if row.script not in ("", "container"):
        script = row.script
    return DRIVER % script, more


def await_moment(row: Row, trial: Trial) -> None:
    if row.act is no_act:
        return
    phase = {"staging": "stage", "collecting": "collect", "ray bring-up": "ray"}.get(row.moment, "driver")
    trial.lab.await_phase(str(trial.run_dir), phase)
    if row.moment == "saving":
        await_true((trial.run_dir / "checkpoints/saving").exists, "the save", 60)
    elif row.moment != "collecting":
        time.sleep(0.3 if row.moment == "staging" else 1.5)
