"""Propose a site profile from what Slurm and this node say about themselves.

What cannot be known from a login node (shared folders, node-local disks, the right network) becomes a comment
to fill in, never a guess that looks like a fact.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from jobspec.finding import fail
from jobspec.launchers.access.command import Client
from jobspec.launchers.reach import Reach
from jobspec.launchers.slurm.commands import gpus_by_type, refusal_fix
from jobspec.launchers.slurm.retry import run_retrying
from jobspec.words import did_you_mean

SINFO_FORMAT = "%R|%l|%D|%c|%m|%G|%a"


# A slice of a GPU in a GRES type: `1g.10gb`, `a100_1g.5gb`, `3g.40gb+me`.
MIG = re.compile(r"(?:^|[_.])\d+g\.\d+gb")


@dataclass(frozen=True)
class Nodes:
    """Nodes of one kind. `gpus` are whole ones, `slices` parts of one (MIG)."""

    count: int
    cpus: int
    memory_mb: int
    gpus: int
    slices: int
    gres: str

    @property
    def text(self) -> str:
        return f"{self.count} with {self.cpus} CPUs, {self.memory_mb} MB, {self.gres}"


@dataclass(frozen=True)
class Partition:
    """One partition and its kinds of nodes."""

    name: str
    default: bool
    max_time: str
    kinds: tuple[Nodes, ...]

    @property
    def used(self) -> tuple[Nodes, ...]:
        """The nodes that a profile of it is for: those with whole GPUs, else those with slices, else all."""
        whole = tuple(kind for kind in self.kinds if kind.gpus)
        return whole or tuple(kind for kind in self.kinds if kind.slices) or self.kinds

    @property
    def nodes(self) -> int:
        return sum(kind.count for kind in self.used)

    @property
    def cpus(self) -> int:
        """Of the smallest node, as are memory and GPUs."""
        return min(kind.cpus for kind in self.used)

    @property
    def memory_mb(self) -> int:
        return min(kind.memory_mb for kind in self.used)

    @property
    def gpus(self) -> int:
        return min(kind.gpus or kind.slices for kind in self.used)


@dataclass(frozen=True)
class Detected:
    """What Slurm and this node say. `notes` name what a person must decide."""

    partition: Partition
    pyxis: bool
    max_array: int
    runs: str
    internet: Reach
    notes: tuple[str, ...] = ()
    whole_nodes: bool = False
    expedite: bool = False


def detect(client: Client, internet: Reach, partition: str = "") -> Detected:
    """Ask sinfo, scontrol and srun. `internet` is what this node reaches.

    Raises: JobspecError when Slurm does not answer or has no such partition.
    """
    partitions = parse_sinfo(
        _ask(client, ["sinfo", "--noheader", "--exact", f"--format={SINFO_FORMAT}"]), _default(client)
    )
    if not partitions:
        raise fail("detect.no-partition", "sinfo lists no partition", fix="check `sinfo` by hand")
    selected = next(
        (item for item in partitions if (item.name == partition if partition else item.default)), None
    )
    if selected is None and partition:
        names = ", ".join(item.name for item in partitions)
        raise fail(
            "detect.no-partition",
            f"there is no partition `{partition}`",
            why=f"there are: {names}",
            fix=did_you_mean(partition, [item.name for item in partitions]) or "name one of them",
        )
    config = _ask(client, ["scontrol", "show", "config"])
    chosen = selected or partitions[0]
    return Detected(
        partition=chosen,
        pyxis="--container-image" in client.run(["srun", "--help"]).stdout,
        max_array=max(0, int(_config(config, "MaxArraySize") or 0) - 1),  # the largest index
        runs=os.environ.get("SCRATCH", ""),
        internet=internet,
        notes=_notes(config, chosen),
        whole_nodes=_gives_whole_nodes(config),
        expedite=_expedites(config),
    )


def _ask(client: Client, argv: list[str]) -> str:
    done = run_retrying(client, argv)
    if done.code != 0:
        raise fail(
            "detect.no-slurm",
            f"`{argv[0]}` failed with exit code {done.code}",
            why=done.complaint,
            fix=refusal_fix(done.complaint, "run this on a login node"),
        )
    return done.stdout


def _default(client: Client) -> str:
    """The default partition: the one that sinfo's %P marks with a star."""
    marked = [
        line for line in _ask(client, ["sinfo", "--noheader", "--format=%P"]).split() if line.endswith("*")
    ]
    return marked[0].rstrip("*") if marked else ""


def parse_sinfo(text: str, default: str) -> list[Partition]:
    """Partitions out of `sinfo -h -e -o SINFO_FORMAT`, which has a line for each kind of nodes.

    >>> parse_sinfo("main|1-00:00:00|4|16|64000|gpu:8(S:0-1)|up", "main")[0].gpus
    8
    """
    by_name: dict[str, Partition] = {}
    for line in text.splitlines():
        cells = line.split("|")
        if len(cells) != 7:
            continue
        name, limit, count, cpus, memory, gres, _ = (cell.strip() for cell in cells)
        kind = Nodes(_number(count), _number(cpus), _number(memory), *_gpus(gres), _plain(gres))
        old = by_name.get(name)
        kinds = (*(old.kinds if old is not None else ()), kind)
        by_name[name] = Partition(name, name == default, limit, kinds)
    return list(by_name.values())


def _number(text: str) -> int:
    match = re.match(r"\d+", text)
    return int(match.group()) if match else 0


def _gpus(gres: str) -> tuple[int, int]:
    """Whole GPUs and slices in a GRES text: `gpu:8`, `gpu:h100:8(S:0-1)`; several types are added up."""
    whole = slices = 0
    for kind, count in gpus_by_type(gres).items():
        if MIG.search(kind):
            slices += count
        else:
            whole += count
    return whole, slices


def _plain(gres: str) -> str:
    """The GRES text without sockets; in words where there is none."""
    return "no GPU" if gres in ("", "(null)") else re.sub(r"\([^)]*\)", "", gres)


def _config(text: str, key: str) -> str:
    match = re.search(rf"^{key}\s*=\s*(.*)$", text, re.MULTILINE)
    value = match.group(1).strip() if match else ""
    return "" if value in ("(null)", "none", "N/A") else value


def _gives_whole_nodes(config: str) -> bool:
    return _config(config, "SelectType") == "select/linear"


def _expedites(config: str) -> bool:
    """Whether `--requeue=expedite` is taken: from Slurm 25.11 on, where the site has switched it on.

    Source: release notes of 25.11 and sbatch(1), `--requeue`. An older sbatch refuses the job.
    """
    version = re.match(r"(\d+)\.(\d+)", _config(config, "SLURM_VERSION"))
    parameters = _config(config, "SlurmctldParameters").split(",")
    new = version is not None and (int(version[1]), int(version[2])) >= (25, 11)
    return new and "enable_expedited_requeue" in parameters


def _notes(config: str, partition: Partition) -> tuple[str, ...]:
    notes = []
    if len({(kind.cpus, kind.memory_mb, kind.gres) for kind in partition.kinds}) > 1:
        kinds = "; ".join(kind.text for kind in partition.kinds)
        notes.append(f"the nodes are unlike: {kinds}")
        least = "`node` has the least of each that a node has"
        if partition.used != partition.kinds:
            what = "whole GPUs" if any(kind.gpus for kind in partition.kinds) else "slices of GPUs"
            least += f" with {what}; keep jobs off the others by `slurm.constraint: FEATURE`"
        notes.append(least)
    if any(kind.slices for kind in partition.kinds):
        notes.append("slices of GPUs (MIG) count as GPUs for Slurm, and NCCL does not work between them")
    if "linuxproc" in _config(config, "ProctrackType"):
        notes.append("ProctrackType is linuxproc: Slurm does not end processes that a job leaves behind")
    if _gives_whole_nodes(config) and any(kind.gpus or kind.slices for kind in partition.kinds):
        # A step that asks for GPUs is refused there: "Invalid generic resource (gres) specification" (22.05).
        notes.append("SelectType is select/linear: a job gets whole nodes with their GPUs, and asks for none")
    if not _config(config, "AccountingStorageType").endswith("slurmdbd"):
        notes.append("no accounting database: exit codes of ended jobs come from the run's own files")
    return tuple(notes)


def _internet(found: Reach) -> str:
    """The line of `network.internet`, by what a login node shows; compute nodes hardly reach more."""
    if found.reached is False:
        return f"  internet: false   # set: {found.why}; compute nodes hardly reach more\n"
    more = "compute nodes may not" if found.reached else "without it, as perhaps in a job, there may be none"
    return f"  # internet: false   # set where compute nodes have none: {found.why}, {more}\n"


def _gpu_types(partition: Partition) -> str:
    """The kinds of whole GPUs that GRES names, each with the least that a node with it has."""
    rows = []
    for name in sorted({name for kind in partition.used for name in _types(kind.gres)}):
        nodes = [kind for kind in partition.used if name in _types(kind.gres)]
        cpus, memory, gpus = (
            min(getattr(kind, key) for kind in nodes) for key in ("cpus", "memory_mb", "gpus")
        )
        node = f"{{cpus: {cpus}, memory: {memory}M, gpus: {gpus}}}"
        rows.append(f"    {name}: {{gres: {name}, node: {node}}}\n")
    return "  gpu_types:   # what `resources.gpu_type` may name\n" + "".join(rows) if rows else ""


def _types(gres: str) -> set[str]:
    """
    >>> _types("gpu:h100:8,nvme:1"), _types("gpu:8"), _types("gpu:1g.10gb:7")
    ({'h100'}, set(), set())
    """
    return {name for name in gpus_by_type(gres) if name[:1].isalpha() and not MIG.search(name)}


def profile_text(detected: Detected, name: str) -> str:
    """The proposed profile as YAML with comments."""
    part = detected.partition
    gpus = "gres" if part.gpus and not detected.whole_nodes else "none"
    limit = "" if part.max_time in ("infinite", "n/a", "") else f'  max_time: "{part.max_time}"\n'
    kinds = "" if detected.whole_nodes else _gpu_types(part)
    notes = "".join(f"# note: {note}\n" for note in detected.notes)
    return (
        f"# Proposed by `jobspec cluster detect` for partition `{part.name}` ({part.nodes} nodes).\n"
        f"# Fill in the lines marked `set`, save it as ~/.config/jobspec/clusters/{name}.yaml,\n"
        f"# then prove it: jobspec cluster check {name}\n"
        f"{notes}"
        f"version: 1\nname: {name}\nscheduler: slurm\n"
        f"slurm:\n  partition: {part.name}\n  gpus: {gpus}\n{kinds}"
        + ("  requeue: expedite   # `launch.requeue` starts again at once\n" if detected.expedite else "")
        + f"container:\n  runtime: {'pyxis' if detected.pyxis else 'none'}\n"
        f"paths:\n  runs: {detected.runs or '/shared'}/jobspec-runs   # set: a folder that every node sees\n"
        "  node_local: /tmp/jobspec-${user}   # set: a disk of each node's own\n"
        "  # hf_home: /shared/huggingface   # set: the shared Hugging Face cache\n"
        "network:\n  # interface: eth0   # set where nodes have several networks\n"
        f"{_internet(detected.internet)}"
        "  ray_ports: {head: 6379, worker_min: 20000, worker_max: 20999}\n"
        f"node:\n  cpus: {max(part.cpus, 1)}\n  memory: {part.memory_mb}M\n  gpus: {part.gpus}\n"
        f"limits:\n  max_nodes: {max(part.nodes, 1)}\n{limit}"
        + (f"  max_array: {detected.max_array}\n" if detected.max_array else "")
    )
