"""The rows of `benchmarks/faults.py`: what is done to a run, at which moment, and how it should end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.fault_acts import (
    BACK,
    FULL,
    READ_ONLY,
    Act,
    Trial,
    await_unpacking,
    away,
    batch_and_srun,
    controller,
    controller_then,
    finish,
    jobspec_cancel,
    kill,
    link,
    no_act,
    on,
    other_job,
    pause,
    power,
    quota_disk,
    requeue,
    scancel,
    suspend,
    tmpfs_disk,
    twice,
)
from tests.slurm.lab import PYTHON, Lab, await_true

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
LOST = r"node `{worker}` left"
CANCEL = r"cancel|SIGTERM|SIGINT"
BY_KILL = r"{head}|killed|head"
RAY = {"mode": "ray"}


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
    cluster: str = "lab"
    user: str = "root"
    container: Callable[[Lab], dict[str, Any]] | None = None  # the section of the spec
    before: Callable[[Lab], Callable[[], object]] | None = None  # makes a node so; returns what undoes it
    submit: Callable[[Lab, Path], dict[str, Any]] | None = None  # else `jobspec submit`

    @property
    def name(self) -> str:
        return f"{self.fault} / {self.moment}"


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
    add("agent of the head killed", "staging,training", kill("agent"), "FAILED", BY_KILL)
    add("guard of the head killed", "training", kill("guard"), "FAILED|CANCELLED", BY_KILL)
    add("agent of the head stopped", "training", kill("agent", "head", "STOP"), "FAILED", BY_KILL)
    add(
        "driver killed",
        "training,ray training,saving",
        kill("driver"),
        "FAILED",
        r"signal 9|exited with 137|was ended|killed",
    )
    add("driver of a worker killed", "training", kill("driver", "worker"), "FAILED", r"signal 9|137|killed")
    add("srun killed", "training", kill("srun"), "FAILED|CANCELLED", r"cancel|srun|SIGTERM|killed")
    add(
        "batch script killed",
        "training,ray training,saving",
        kill("batch"),
        "FAILED",
        r"batch script was killed",
    )
    add("batch script and srun killed", "saving", batch_and_srun, "FAILED", r"batch script was killed")
    add("gcs killed", "ray bring-up,ray training", kill("gcs"), "FAILED", r"Ray|GCS|gcs|ray")
    patient = {"launch": {"join_timeout": 30}}
    add("gcs stopped", "ray bring-up", kill("gcs", "head", "STOP"), "FAILED", r"Ray", extra=patient)
    add("gcs stopped for 20 s", "ray bring-up", pause("gcs", 20), "COMPLETED", "^$")
    add(
        "raylet of a worker stopped for 35 s",
        "ray bring-up",
        pause("raylet", 35, "worker"),
        "COMPLETED",
        "^$",
    )
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
            r"^$|Read-only|written|results",
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
    for where, node in (("the head", "n1"), ("a worker", "n2")):  # rows that run alone get these two
        add(
            f"quota of {where} used up",
            "staging",
            no_act,
            "FAILED 3:0",
            rf"quota of space or of files.* {node}$",
            kept=False,
            alone=True,
            before=quota_disk(node, 300 << 20),
        )
    add(
        "node disk of a worker too small",
        "staging",
        no_act,
        "FAILED 3:0",
        r"staging needs.* n2$",
        kept=False,
        alone=True,
        before=tmpfs_disk("n2", 1500 << 20),
    )
    for code, said in ((1, "exited with 1"), (5, "exited with 5"), (42, "exited with 42")):
        add(f"exit {code}", "training", no_act, f"FAILED {code}:0", said, script=f"exit {code}")
    add(
        "segmentation fault",
        "training",
        no_act,
        "FAILED (139|11)",
        r"signal 11|139|egmentation|crashed",
        script="kill -SEGV $$",
    )
    add(
        "kill -9 of itself",
        "training",
        no_act,
        "FAILED (137|9)",
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
        cluster="lab-bubblewrap",
        container=lambda lab: {"image": str(lab.shared / "empty"), "python": str(PYTHON)},
    )
    add("other job of the node killed", "training", other_job, "COMPLETED", "^$", alone=True)
    return found


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
    if row.script:
        script = row.script
    if row.container is not None:
        more["container"] = row.container(lab)
    return DRIVER % script, more


def await_moment(row: Row, trial: Trial) -> None:
    if row.act is no_act:
        return
    if row.moment == "unpacking":
        await_unpacking(trial)
        return
    phase = {"staging": "stage", "collecting": "collect", "ray bring-up": "ray"}.get(row.moment, "driver")
    trial.lab.await_phase(str(trial.run_dir), phase)
    if row.moment == "saving":
        await_true((trial.run_dir / "checkpoints/saving").exists, "the save", 60)
    elif row.moment != "collecting":
        time.sleep(0.3 if row.moment == "staging" else 1.5)
