"""What the queue says about a job that is not submitted yet: its start, free GPUs, maintenance ahead.

A question may stay without an answer; then the forecast says why, and nothing stops. Times are seconds since
the epoch: with `SLURM_TIME_FORMAT=%s` the cluster's time zone does not matter.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from jobspec.finding import Finding, JobspecError, error, warning
from jobspec.launchers.access.command import Client, Completed
from jobspec.launchers.slurm.commands import gpus_by_type, refusal_fix
from jobspec.runtime.base import hostlist
from jobspec.units import parse_time, slurm_time
from jobspec.words import some

if TYPE_CHECKING:
    from jobspec.plan import Plan

ASK_S = 5.0  # how long each answer is waited for
IN_SECONDS = ("env", "SLURM_TIME_FORMAT=%s")
NODES_FORMAT = "NodeHost:80,StateCompact:20,Gres:200,GresUsed:200,DefaultTime:20,Time:20,Partition:80"
# From Slurm 25.05 on "to start at 1 a using 2 processors", or "to start at 1 on cluster lab a using".
_START = re.compile(r"to start at (\d+)(?: on cluster \S+)?(?: a)? using \d+ processors on (?:nodes )?(\S+)")
_AWAY = re.compile(r"configuration source|contact slurm controller|[Mm]unge|No such file or directory$")
MOST_NAMED = 8
_UP = ("idle", "mix", "alloc", "comp")


@dataclass(frozen=True)
class Gpus:
    """GPUs of one type in the run's partition; `type` is empty where Slurm's GRES has none."""

    type: str
    idle: int
    total: int


@dataclass(frozen=True)
class Maintenance:
    """A maintenance reservation that a job which starts now would run into; `longest` is in minutes."""

    name: str
    start: int
    end: int
    longest: int


@dataclass(frozen=True)
class Node:
    """A node of a partition, as sinfo shows it."""

    name: str
    state: str
    gres: str
    used: str
    default_time: str
    max_time: str
    partition: str


@dataclass(frozen=True)
class Short:
    """Fewer nodes than the run needs: `left` of the partition's `there`.

    `listed` are those of the excluded that the user's list has for `cluster`.
    """

    needed: int
    there: int
    left: int
    excluded: tuple[str, ...]
    listed: tuple[str, ...]
    cluster: str


@dataclass(frozen=True)
class Forecast:
    """`start` is 0 and `nodes` empty where Slurm names none; `refused` is its complaint about the job."""

    asked: int
    start: int = 0
    nodes: str = ""
    refused: str = ""
    gpus: tuple[Gpus, ...] = ()
    maintenance: Maintenance | None = None
    unanswered: str = ""
    short: Short | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def findings(self) -> Iterator[Finding]:
        if self.refused:
            what, fix = "sbatch would refuse the job", refusal_fix(self.refused, "ask the cluster's staff")
            yield error("launch.refused", what, self.refused, fix)
        if self.short is not None:
            yield _too_many(self.short)
        if self.maintenance is not None:
            yield _told(self.maintenance)


def _too_many(it: Short) -> Finding:
    if it.listed:
        off = f"jobspec nodes remove {' '.join(it.listed[:MOST_NAMED])} --cluster {it.cluster}"
        fix = f"run `{off}`, or leave the list out by `--set slurm.avoid_listed=false`"
    else:
        fix = "exclude fewer nodes in `slurm.exclude`, or lower `resources.nodes`"
    return error(
        "nodes.too-many-excluded",
        f"{it.left} of the partition's {it.there} nodes are left, and the run needs {it.needed}",
        "excluded are " + some([f"`{name}`" for name in it.excluded], MOST_NAMED),
        fix,
        path="slurm.exclude",
    )


def _told(it: Maintenance) -> Finding:
    start, end = (time.strftime("%Y-%m-%d %H:%M", time.localtime(at)) for at in (it.start, it.end))
    if it.longest:
        what = f"the maintenance `{it.name}` begins at {start}, within the run's time limit"
        fix = f'set `resources.time: "{slurm_time(it.longest * 60)}"` or less, which still fits before it'
    else:
        what, fix = f"the maintenance `{it.name}` has nodes that the run needs", "wait, or use other nodes"
    why = f"Slurm starts no job that would run into it: this one waits until {end}"
    return warning("launch.maintenance", what, why, fix, path="resources.time")


def foresee(client: Client, plan: Plan, script: str = "") -> Forecast:
    """What Slurm says about the run. With the text of its batch script it is asked when that would start."""
    now = int(time.time())
    missing: list[str] = []
    tested = _ask(client, ("sbatch", "--test-only"), missing, script) if script else None
    start, nodes, refused = parse_test(tested) if tested else (0, "", "")
    partitions = [part.slurm.partition for part in plan.components]
    within = (f"--partition={','.join(dict.fromkeys(partitions))}",) if all(partitions) else ()
    listed = _ask(client, ("sinfo", "-N", "-h", *within, f"--Format={NODES_FORMAT}"), missing)
    seen = parse_nodes(listed.stdout, several=len(plan.components) > 1) if listed else ()
    reserved = _ask(client, ("scontrol", "show", "reservation", "--oneliner"), missing)
    maintenances, shorts = [], []
    for part in plan.components:
        own, only = _of_partition(seen, part.slurm.partition), plan.only(part)
        found = _ahead(parse_reservations(reserved.stdout), only, own, now) if reserved else None
        maintenances += [found] if found else []
        short = _short(only, {node.name for node in own})
        shorts += [short] if short else []
    maintenance = min(maintenances, key=lambda item: item.start, default=None)
    gpus = gpus_of(seen)
    return Forecast(now, start, nodes, refused, gpus, maintenance, "".join(missing), next(iter(shorts), None))


def _of_partition(nodes: Sequence[Node], partition: str) -> tuple[Node, ...]:
    """Those of one or several partitions by commas; of the default one, or all, where none is named."""
    if not partition:
        return _default(nodes)
    names = partition.split(",")
    return tuple(node for node in nodes if node.partition.rstrip("*") in names)


def _short(plan: Plan, there: set[str]) -> Short | None:
    """Where too few nodes are left beside the excluded ones: Slurm refuses the job, or never starts it."""
    excluded = there & hostlist.names(plan.slurm.exclude)
    left = len(there - excluded)
    if not excluded or left >= plan.nodes:
        return None
    listed = tuple(sorted(excluded & set(plan.slurm.avoided)))
    return Short(plan.nodes, len(there), left, tuple(sorted(excluded)), listed, plan.cluster)


def _ask(client: Client, argv: Sequence[str], missing: list[str], stdin: str = "") -> Completed | None:
    """One answer; None where there is none, with the reason in `missing`: then nothing more is asked.

    That sbatch refuses the job is an answer.
    """
    if missing:
        return None
    try:
        done = client.run((*IN_SECONDS, *argv), timeout_s=ASK_S, stdin=stdin)
    except JobspecError as problem:
        missing.append(problem.findings[0].what)
        return None
    said = done.complaint.strip().rpartition("\n")[2]
    if done.timed_out or (done.code != 0 and (argv[0] != "sbatch" or _AWAY.search(done.complaint))):
        why = "did not answer in time" if done.timed_out else f"failed: {said or done.code}"
        missing.append(f"`{argv[0]}` {why}")
        return None
    return done


def parse_test(done: Completed) -> tuple[int, str, str]:
    """Start and nodes by `sbatch --test-only`, or its complaint."""
    match = _START.search(done.stderr)
    if match:
        return int(match[1]), match[2], ""
    return 0, "", (done.complaint.strip().rpartition("\n")[2] if done.code else "")


def parse_nodes(text: str, several: bool = False) -> tuple[Node, ...]:
    """The nodes of the first partition that sinfo marks as the default, else of all that it lists.

    `several`: of all in any case, since the parts of a run may be in several partitions.
    """
    rows = [Node(*cells) for line in text.splitlines() if len(cells := line.split()) == 7]
    return tuple(rows) if several else _default(rows)


def _default(rows: Sequence[Node]) -> tuple[Node, ...]:
    return tuple([row for row in rows if row.partition.endswith("*")] or rows)


def gpus_of(nodes: Iterable[Node]) -> tuple[Gpus, ...]:
    """Idle and all GPUs by type; a node that is down or drained has none that are idle."""
    total: dict[str, int] = {}
    idle: dict[str, int] = {}
    for node in {node.name: node for node in nodes}.values():
        used = gpus_by_type(node.used)
        for kind, count in gpus_by_type(node.gres).items():
            total[kind] = total.get(kind, 0) + count
            free = count - used.get(kind, 0) if node.state.startswith(("idle", "mix")) else 0
            idle[kind] = idle.get(kind, 0) + free
    return tuple(Gpus(kind, idle[kind], total[kind]) for kind in sorted(total))


def parse_reservations(text: str) -> list[Mapping[str, str]]:
    """Each reservation's fields by name."""
    rows = (dict(re.findall(r"(\w+)=(\S*)", line)) for line in text.splitlines())
    return [row for row in rows if "ReservationName" in row]


def _ahead(
    reservations: Iterable[Mapping[str, str]], plan: Plan, partition: Sequence[Node], now: int
) -> Maintenance | None:
    """The first maintenance whose nodes the run cannot do without, and that its time limit reaches."""
    limit = plan.time_limit_s if plan.time_limit_s is not None else _limit_of(partition)
    names = {node.name for node in partition if node.state.startswith((*_UP, "maint", "plnd", "resv"))}
    found = []
    for row in reservations:
        start, end = row.get("StartTime", ""), row.get("EndTime", "")
        ours = row["ReservationName"] == plan.slurm.reservation
        if "MAINT" not in row.get("Flags", "").split(",") or ours or not (start + end).isdecimal():
            continue
        reached = limit is None or now + limit > int(start)
        if reached and now < int(end) and len(names - hostlist.names(row.get("Nodes", ""))) < plan.nodes:
            longest = max(0, int(start) - now) // 60
            found.append(Maintenance(row["ReservationName"], int(start), int(end), longest))
    return min(found, key=lambda item: item.start, default=None)


def _limit_of(partition: Sequence[Node]) -> int | None:
    """The partition's own time limit in seconds; None where it has none."""
    for node in partition[:1]:
        for text in (node.default_time, node.max_time):
            if re.fullmatch(r"[\d:-]+", text):
                return parse_time(text)
    return None
