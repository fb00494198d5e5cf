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
from jobspec.launchers.slurm.commands import refusal_fix
from jobspec.launchers.slurm.retry import run_retrying
from jobspec.words import did_you_mean

SINFO_FORMAT = "%R|%l|%D|%c|%m|%G|%a"


@dataclass(frozen=True)
class Partition:
    """One partition; `cpus`, `memory_mb` and `gpus` are of its smallest node."""

    name: str
    default: bool
    max_time: str
    nodes: int
    cpus: int
    memory_mb: int
    gpus: int
    gres: str


@dataclass(frozen=True)
class Detected:
    """What Slurm and this node say. `notes` name what a person must decide."""

    partition: Partition
    pyxis: bool
    max_array: int
    runs: str
    notes: tuple[str, ...] = ()


def detect(client: Client, partition: str = "") -> Detected:
    """Ask sinfo, scontrol and srun.

    Raises: JobspecError when Slurm does not answer or has no such partition.
    """
    partitions = parse_sinfo(
        _ask(client, ["sinfo", "--noheader", f"--format={SINFO_FORMAT}"]), _default(client)
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
    return Detected(
        partition=selected or partitions[0],
        pyxis="--container-image" in client.run(["srun", "--help"]).stdout,
        max_array=int(_config(config, "MaxArraySize") or 0),
        runs=os.environ.get("SCRATCH", ""),
        notes=_notes(config),
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
    """Partitions out of `sinfo -h -o SINFO_FORMAT`; groups of unlike nodes are joined to their smallest node.

    >>> parse_sinfo("main|1-00:00:00|4|16+|64000|gpu:8(S:0-1)|up", "main")[0].gpus
    8
    """
    by_name: dict[str, Partition] = {}
    for line in text.splitlines():
        cells = line.split("|")
        if len(cells) != 7:
            continue
        name, limit, nodes, cpus, memory, gres, _ = (cell.strip() for cell in cells)
        row = Partition(
            name, name == default, limit, _number(nodes), _number(cpus), _number(memory), _gpus(gres), gres
        )
        old = by_name.get(name)
        by_name[name] = row if old is None else _join(old, row)
    return list(by_name.values())


def _join(one: Partition, other: Partition) -> Partition:
    return Partition(
        one.name, one.default, one.max_time, one.nodes + other.nodes, min(one.cpus, other.cpus),
        min(one.memory_mb, other.memory_mb), min(one.gpus, other.gpus), one.gres or other.gres,
    )  # fmt: skip


def _number(text: str) -> int:
    match = re.match(r"\d+", text)
    return int(match.group()) if match else 0


def _gpus(gres: str) -> int:
    """GPUs in a GRES text: `gpu:8`, `gpu:h100:8(S:0-1)`, several types added up; 0 for `(null)`."""
    return sum(int(count) for count in re.findall(r"\bgpu(?::[\w.-]*[A-Za-z_][\w.-]*)?:(\d+)", gres))


def _config(text: str, key: str) -> str:
    match = re.search(rf"^{key}\s*=\s*(.*)$", text, re.MULTILINE)
    value = match.group(1).strip() if match else ""
    return "" if value in ("(null)", "none", "N/A") else value


def _notes(config: str) -> tuple[str, ...]:
    notes = []
    if "linuxproc" in _config(config, "ProctrackType"):
        notes.append("ProctrackType is linuxproc: Slurm does not end processes that a job leaves behind")
    if not _config(config, "AccountingStorageType").endswith("slurmdbd"):
        notes.append("no accounting database: exit codes of ended jobs come from the run's own files")
    return tuple(notes)


def profile_text(detected: Detected, name: str) -> str:
    """The proposed profile as YAML with comments."""
    part = detected.partition
    gpus = "gres" if part.gpus else "none"
    limit = "" if part.max_time in ("infinite", "n/a", "") else f'  max_time: "{part.max_time}"\n'
    notes = "".join(f"# note: {note}\n" for note in detected.notes)
    return (
        f"# Proposed by `jobspec cluster detect` for partition `{part.name}` ({part.nodes} nodes).\n"
        f"# Fill in the lines marked `set`, save it as ~/.config/jobspec/clusters/{name}.yaml,\n"
        f"# then prove it: jobspec cluster check {name}\n"
        f"{notes}"
        f"version: 1\nname: {name}\nscheduler: slurm\n"
        f"slurm:\n  partition: {part.name}\n  gpus: {gpus}\n"
        f"container:\n  runtime: {'pyxis' if detected.pyxis else 'none'}\n"
        f"paths:\n  runs: {detected.runs or '/shared'}/jobspec-runs   # set: a folder that every node sees\n"
        "  node_local: /tmp/jobspec-${user}   # set: a disk of each node's own\n"
        "  # hf_home: /shared/huggingface   # set: the shared Hugging Face cache\n"
        "network:\n  # interface: eth0   # set where nodes have several networks\n"
        "  ray_ports: {head: 6379, worker_min: 20000, worker_max: 20999}\n"
        f"node:\n  cpus: {max(part.cpus, 1)}\n  memory: {part.memory_mb}M\n  gpus: {part.gpus}\n"
        f"limits:\n  max_nodes: {max(part.nodes, 1)}\n{limit}"
        + (f"  max_array: {detected.max_array}\n" if detected.max_array else "")
    )
