"""torch's flight recorder: its dumps read without executing them, and who has not come to which collective.

A pickle is read with no class at all: torch writes plain containers. Groups are compared by process group and
sequence number. gloo's entries never say `completed`; `retired` and the group's status tell there.
Source: torch/csrc/distributed/c10d/FlightRecorder.hpp, versions 2.4 to 2.10 of the dump.
"""

from __future__ import annotations

import ast
import io
import json
import pickle
import re
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, Dict, Iterable, List, Mapping, NoReturn, Optional, Sequence, Tuple

from jobspec.runtime.stalls.libraries import is_library
from jobspec.runtime.stalls.stacks import MAX_LINE, Frame

MAX_BYTES = 64 * 1024**2
MAX_ENTRIES = 100_000
MAX_PARTS = 20_000_000  # of the data: a pickle of a few bytes may hold one list a billion times
LAST_OPS, LAST_FRAMES = 40, 3  # that a node sends of each group
_EVEN = re.compile(r"^_(?:all_gather|reduce_scatter)_base$")
LIKE_COLLECTIVES = re.compile(r"^(?:nccl|gloo|xccl|hccl|ucc|mpi):")


class DumpError(ValueError):
    """The bytes are no flight recorder's dump."""


class _NoClasses(pickle._Unpickler):
    """Plain containers, numbers and strings; any name is refused before it is looked up.

    The one in Python: that in C takes gigabytes at once for ten bytes that name a high place of its memo. A
    `bytearray` takes as much as it says that it has: it goes as well.
    """

    dispatch: ClassVar[Dict[int, Any]] = {
        code: take for code, take in pickle._Unpickler.dispatch.items() if code != pickle.BYTEARRAY8[0]
    }

    def find_class(self, module: str, name: str) -> NoReturn:
        raise DumpError(f"it names `{module}.{name}`, which a flight recorder's dump never does")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise DumpError("it names an object outside itself")


@dataclass(frozen=True)
class Op:
    """One operation that a rank has asked for."""

    number: int
    name: str
    sizes: str
    dtypes: str
    done: bool
    started: bool
    frames: Tuple[Frame, ...] = ()
    order: int = -1  # among all operations of the rank, whatever their group; -1: not told


@dataclass(frozen=True)
class Group:
    """A process group as one rank has seen it: its operations by sequence number, and the last ones."""

    name: str
    ranks: Tuple[int, ...]
    ops: Mapping[int, Op]
    enqueued: int
    completed: int


@dataclass(frozen=True)
class RankDump:
    rank: int
    groups: Mapping[str, Group]
    source: str = ""


@dataclass(frozen=True)
class Front:
    """Where a process group stands: the first operation that not all ranks have ended.

    `absent` have not asked for it, `other` have asked for another one in its place, `unknown` gave no dump.
    """

    group: str
    number: int
    op: str
    sizes: str
    waiting: Tuple[int, ...]
    absent: Tuple[int, ...]
    other: Tuple[Tuple[int, str], ...]
    unknown: Tuple[int, ...]
    frames: Tuple[Frame, ...] = ()
    others_frames: Tuple[Frame, ...] = ()


def read(path: Path, rank: int, source: str = "") -> RankDump:
    """The dump in a file; of a large one no more is read than shows that. Raises: DumpError, OSError."""
    with path.open("rb") as file:
        return load(file.read(MAX_BYTES + 1), rank, source)


def load(data: bytes, rank: int, source: str = "") -> RankDump:
    """One rank's dump, pickle or JSON. Raises: DumpError."""
    if len(data) > MAX_BYTES:
        raise DumpError(f"it has more than {MAX_BYTES // 1024**2} MiB")
    try:
        plain = json.loads(data) if data[:1] in b"{ \n" else _NoClasses(io.BytesIO(data)).load()
        _bound(plain)
    except DumpError:
        raise
    except Exception as problem:  # a damaged pickle raises anything
        raise DumpError(f"it cannot be read: {type(problem).__name__}") from problem
    if not isinstance(plain, dict) or not ("entries" in plain or "pg_status" in plain):
        raise DumpError("it has neither `entries` nor `pg_status`")
    try:
        return RankDump(rank, _groups(plain), source)
    except Exception as problem:  # so may values: an infinite number, a text of a thousand brackets
        raise DumpError(f"its form is not known: {type(problem).__name__}: {problem}") from problem


def _bound(data: Any) -> None:
    """Raises: DumpError where the data has too many parts, those counted again that it holds again."""
    left, parts = MAX_PARTS, [data]
    while parts:
        part = parts.pop()
        left -= 1
        if len(parts) > left:
            raise DumpError(f"it has more than {MAX_PARTS} parts")
        if isinstance(part, dict):
            parts += part.keys()
            parts += part.values()
        elif isinstance(part, (list, tuple, set, frozenset)):
            parts += part


def compact(dump: RankDump) -> Dict[str, Any]:
    """The last operations of each group, as JSON data that `from_compact` takes: a node sends these."""
    groups = {}
    for key, group in dump.groups.items():
        last = [group.ops[number] for number in sorted(group.ops)[-LAST_OPS:]]
        # A list for each operation: a node has eight ranks or more, with several groups.
        ops = [
            [
                op.number,
                op.name,
                op.sizes,
                op.dtypes,
                op.done,
                op.started,
                [[f.function, f.file, f.line] for f in _short(op)],
                op.order,
            ]
            for op in last
        ]
        groups[key] = [group.name, list(group.ranks), ops, group.enqueued, group.completed]
    return {"rank": dump.rank, "groups": groups}


def _short(op: Op) -> Sequence[Frame]:
    """The program's own frames are enough."""
    return [frame for frame in op.frames if not is_library(frame)][:LAST_FRAMES]


def _read_op(
    number: int,
    name: str,
    sizes: str,
    dtypes: str,
    done: bool,
    started: bool,
    frames: Sequence[Sequence[Any]],
    order: int = -1,
) -> Op:
    return Op(number, name, sizes, dtypes, done, started, tuple(Frame(*frame) for frame in frames), order)


def from_compact(data: Mapping[str, Any]) -> RankDump:
    groups = {}
    for key, (name, ranks, rows, enqueued, completed) in data["groups"].items():
        ops = [_read_op(*row) for row in rows]
        groups[key] = Group(name, tuple(ranks), {op.number: op for op in ops}, enqueued, completed)
    return RankDump(data["rank"], groups)


def _groups(plain: Mapping[str, Any]) -> Dict[str, Group]:
    config = {str(name): row for name, row in dict(plain.get("pg_config") or {}).items()}
    status = {str(name): row for name, row in dict(plain.get("pg_status") or {}).items()}
    ops: Dict[str, Dict[int, Op]] = {}
    names: Dict[str, str] = {}
    for entry in list(plain.get("entries") or ())[-MAX_ENTRIES:]:
        if entry.get("is_p2p"):
            continue
        label = tuple(str(part) for part in entry.get("process_group") or ("", ""))
        key = label[0]
        names[key] = next((part for part in label[1:] if part and part != "undefined"), key)
        op = _op(entry)
        ops.setdefault(key, {})[op.number] = op
    groups: Dict[str, Group] = {}
    for key in {*ops, *config}:
        last = status.get(key) or (next(iter(status.values())) if len(status) == 1 else {})
        own = ops.get(key, {})
        done = [op.number for op in own.values() if op.done]
        row = config.get(key) or (next(iter(config.values())) if len(config) == 1 else {})
        title = names.get(key) or str(row.get("desc") or key)
        if key in config or key in ops:
            groups[key] = Group(
                title,
                _ranks(row.get("ranks")),
                own,
                # The status lags behind the entries: of the numbers the higher ones are the later ones.
                max(int(last.get("last_enqueued_collective") or 0), max(own, default=0)),
                max(int(last.get("last_completed_collective") or 0), max(done, default=0)),
            )
    # gloo's default group is '' in the configuration and '0' in its entries.
    return {key: group for key, group in groups.items() if group.ops or len(groups) == 1}


def _op(entry: Mapping[str, Any]) -> Op:
    frames = tuple(
        Frame(str(row.get("name", "")), str(row.get("filename", "")), int(row.get("line") or 0))
        for row in entry.get("frames") or ()
        if isinstance(row, dict)
    )
    state = str(entry.get("state", ""))
    retired = entry.get("retired") in (True, "true", 1)
    name = LIKE_COLLECTIVES.sub("", str(entry.get("profiling_name", "?")))
    gloo = str(entry.get("profiling_name", "")).startswith("gloo:")
    return Op(
        int(entry.get("collective_seq_id") or 0),
        name,
        str(entry.get("input_sizes", "")),
        str(entry.get("input_dtypes", "")),
        done=state == "completed" or (gloo and retired),
        started=state in ("started", "completed"),
        frames=frames,
        order=int(entry.get("record_id", -1)),
    )


def _ranks(value: Any) -> Tuple[int, ...]:
    """`"[0, 1]"`, or a list."""
    given = ast.literal_eval(value) if isinstance(value, str) and value.strip() else value
    return tuple(int(rank) for rank in given or ())


def fronts(dumps: Iterable[RankDump]) -> List[Front]:
    """The groups whose ranks do not stand at one finished operation; the one with the lowest time first."""
    by_rank = {dump.rank: dump for dump in dumps}
    keys = sorted({key for dump in by_rank.values() for key in dump.groups})
    found = {key: front for key in keys if (front := _front(key, by_rank)) is not None}
    if not any(front.absent or front.other for front in found.values()):
        found |= _crossed(found, by_rank)
    return sorted(found.values(), key=_weight)


def _crossed(found: Mapping[str, Front], by_rank: Mapping[int, RankDump]) -> Dict[str, Front]:
    """Of two groups whose operations all have asked for: ranks that asked for the second one's first."""
    for (first, front), (second, then) in combinations(found.items(), 2):
        both = [rank for rank in front.waiting if rank in then.waiting]
        turned = [
            rank
            for rank in both
            if _order(by_rank[rank], first, front) > _order(by_rank[rank], second, then) >= 0
        ]
        if not turned or len(turned) == len(both):
            continue
        if 2 * len(turned) > len(both):  # most have it so: the other group is the one to tell of
            first, front, then = second, then, front
            turned = [rank for rank in both if rank not in turned]
        text = f"{then.op} of group {then.group}, before it"
        waiting = tuple(rank for rank in front.waiting if rank not in turned)
        return {first: replace(front, waiting=waiting, other=tuple((rank, text) for rank in turned))}
    return {}


def _order(dump: RankDump, key: str, front: Front) -> int:
    op = dump.groups[key].ops.get(front.number)
    return op.order if op else -1


def _weight(front: Front) -> Tuple[bool, int]:
    """Groups in which somebody is missing or differs first, of these the small ones (model parallel)."""
    return (not (front.absent or front.other), len(front.waiting) + len(front.absent) + len(front.other))


def _front(key: str, by_rank: Mapping[int, RankDump]) -> Optional[Front]:
    views = {rank: dump.groups[key] for rank, dump in by_rank.items() if key in dump.groups}
    told = [group.ranks for group in views.values() if group.ranks]
    members = max(told, key=told.count) if told else tuple(sorted(views))
    # A dump that tells of other members is of another world: nothing is known of that rank here.
    views = {rank: group for rank, group in views.items() if group.ranks in ((), members)}
    number = min((group.completed for group in views.values()), default=0) + 1
    at = {rank: group.ops.get(number) for rank, group in views.items()}
    if not any(op is not None and not op.done for op in at.values()):
        return None
    absent = tuple(rank for rank in members if rank in views and views[rank].enqueued < number)
    here = {rank: op for rank, op in at.items() if op is not None}
    kinds = _kinds(here)
    waiting = kinds[0][1] if kinds else ()
    other = tuple((rank, text) for text, ranks in kinds[1:] for rank in ranks)
    first = here[waiting[0]] if waiting else None
    differs = here[other[0][0]].frames if other else ()
    unknown = tuple(rank for rank in members if rank not in views)
    return Front(
        next(iter(views.values())).name or key,
        number,
        first.name if first else "?",
        f"{first.sizes} {first.dtypes}".strip() if first else "",
        waiting,
        absent,
        other,
        unknown,
        first.frames if first else (),
        differs,
    )


def _kinds(here: Mapping[int, Op]) -> List[Tuple[str, Tuple[int, ...]]]:
    """The ranks by what they have asked for, the most first."""
    kinds: Dict[str, List[int]] = {}
    for rank, op in sorted(here.items()):
        # The side of a gather or a scatter that gives nothing has other sizes by right; where all give one
        # tensor (`all_gather_into_tensor`, `reduce_scatter_tensor`) nobody has.
        free = re.search(r"gather|scatter|all_to_all|alltoall", op.name.lower()) and not _EVEN.search(op.name)
        sizes = "" if free else op.sizes
        kinds.setdefault(f"{op.name} {sizes} {op.dtypes}".strip(), []).append(rank)
    return sorted(((text, tuple(ranks)) for text, ranks in kinds.items()), key=lambda item: -len(item[1]))


_LAST = re.compile(
    r"\[PG ID (?P<id>\S+) PG GUID (?P<group>[^\]]*?) Rank (?P<rank>\d+)\]"
    r".*?[Ll]ast enqueued (?:NCCL )?work: (?P<enqueued>-?\d+)"
    r".*?last completed (?:NCCL )?work: (?P<completed>-?\d+)"
)
_WORK = re.compile(
    r"\[Rank (?P<rank>\d+)\].*WorkNCCL\(SeqNum=(?P<number>\d+), OpType=(?P<op>\w+)"
    r"(?:, NumelIn=(?P<input>\d+), NumelOut=(?P<output>\d+))?"
)


def from_watchdog(lines: Sequence[str]) -> List[Front]:
    """The same from what NCCL's watchdog prints: numbers of each rank, and the operation that timed out."""
    last: Dict[str, Dict[int, Tuple[int, int]]] = {}
    ops: Dict[int, Tuple[int, str]] = {}
    for line in (line[:MAX_LINE] for line in lines):
        if found := _LAST.search(line):
            group = found["group"].split("(")[-1].rstrip(")") or found["id"]
            last.setdefault(group, {})[int(found["rank"])] = (int(found["enqueued"]), int(found["completed"]))
        elif found := _WORK.search(line):
            sizes = f" NumelIn={found['input']}" if found["input"] else ""
            ops.setdefault(int(found["rank"]), (int(found["number"]), f"{found['op']}{sizes}"))
    fronts_found: List[Front] = []
    for group, ranks in last.items():
        number = min(completed for _, completed in ranks.values()) + 1
        absent = tuple(sorted(rank for rank, (enqueued, _) in ranks.items() if enqueued < number))
        asked = {rank: text for rank, (at, text) in ops.items() if at == number and rank in ranks}
        usual = max(set(asked.values()), key=list(asked.values()).count) if asked else "?"
        other = tuple((rank, text) for rank, text in sorted(asked.items()) if text != usual)
        ended = {rank for rank, (_, completed) in ranks.items() if completed >= number}
        waiting = tuple(sorted(set(ranks) - set(absent) - ended - {rank for rank, _ in other}))
        fronts_found.append(Front(group, number, usual, "", waiting, absent, other, ()))
    return fronts_found
