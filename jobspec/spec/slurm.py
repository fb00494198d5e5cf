"""What sbatch may be told, as keys: of one run (`slurm` in a spec) and of a site (`slurm` in its profile)."""

from __future__ import annotations

from typing import Annotated, Literal

from jobspec.spec.fields import Base, Word, doc

MailEvent = Literal[
    "none", "begin", "end", "fail", "requeue", "all", "invalid_depend", "time_limit", "time_limit_90",
    "time_limit_80", "time_limit_50", "array_tasks",
]  # fmt: skip


class Mail(Base, frozen=True):
    """When Slurm writes to whom."""

    events: Annotated[
        tuple[MailEvent, ...], doc("What is told, in sbatch's words (`--mail-type`).", ["end", "fail"])
    ] = ()
    user: Annotated[
        Word | None, doc("Address (`--mail-user`). Default: the submitting user.", "me@example.org")
    ] = None


class Placement(Base, frozen=True):
    """Where nodes come from, and who is charged for them."""

    account: Annotated[Word | None, doc("Account that is charged (`--account`).", "research")] = None
    partition: Annotated[Word | None, doc("Partition (`--partition`).", "batch")] = None
    qos: Annotated[Word | None, doc("Quality of service (`--qos`).", "normal")] = None
    reservation: Annotated[Word | None, doc("Reservation (`--reservation`).", "rl-week")] = None
    constraint: Annotated[Word | None, doc("Features of the nodes (`--constraint`).", "ib&nvme")] = None


class SlurmOptions(Placement, frozen=True):
    """What a site tells Slurm for every run, and a spec for its own."""

    exclude: Annotated[
        Word | None,
        doc("Nodes to keep away from (`--exclude`); the spec's are added to the site's.", "n7,n[12-13]"),
    ] = None
    avoid_listed: Annotated[
        bool | None,
        doc("Also keep away from the nodes of `jobspec nodes`; reports may add to them. Default: `true`."),
    ] = None
    licenses: Annotated[Word | None, doc("Licences (`--licenses`).", "fs_scratch:1")] = None
    nice: Annotated[int | None, doc("Lower priority by this much (`--nice`).", 100)] = None
    mail: Annotated[Mail, doc("When Slurm writes to whom.")] = Mail()
    extra_sbatch: Annotated[
        tuple[str, ...],
        doc(
            "Further sbatch options, each one word; none that a key stands for. "
            "A spec's are added to the site's.",
            ["--switches=1", "--comment=rl"],
        ),
    ] = ()


class RunOptions(SlurmOptions, frozen=True):
    """What Slurm is told about this run. Missing values come from the site profile; '' asks for none."""

    nodelist: Annotated[Word | None, doc("Nodes that must be among the run's (`--nodelist`).", "n[1-4]")] = (
        None
    )
    begin: Annotated[Word | None, doc("Earliest start (`--begin`).", "now+2hours", "2026-12-24T18:00")] = None
    dependency: Annotated[
        tuple[Word, ...],
        doc(
            "All that must hold first: sbatch's words, before a run (its id or name) or a job's number.",
            ["afterok:20261128-013207-f5c483", "afterany:4711", "singleton"],
        ),
    ] = ()
