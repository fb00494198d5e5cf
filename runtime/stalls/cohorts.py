"""Groups of processes that do the same at the same place, and what has moved between two samples."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from jobspec.runtime.stalls import callers, waits
from jobspec.runtime.stalls.flight import Front
from jobspec.runtime.stalls.kinds import BEGUN, IDLE, ON_RANKS
from jobspec.runtime.stalls.phrases import phrase
from jobspec.runtime.stalls.ras import Trouble
from jobspec.runtime.stalls.stacks import Frame, Process
from jobspec.runtime.stalls.waits import Wait

BUSY_SHARE = 0.5  # of a core, between two samples
SHOWN = 8  # names in a sentence


@dataclass(frozen=True)
class Cohort:
    """Processes that do the same at the same place."""

    wait: Wait
    members: Tuple[Process, ...]
    caller: Optional[Frame] = None  # where others have come to the same place by another call

    @property
    def names(self) -> str:
        return names(self.members)


@dataclass(frozen=True)
class View:
    """All that is known at the moment of the dump."""

    first: Sequence[Process]
    second: Sequence[Process] = ()
    fronts: Sequence[Front] = ()
    ray: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = False  # every node of the run answered
    ras: Sequence[Trouble] = ()  # of NCCL, the same in both samples

    @property
    def last(self) -> Sequence[Process]:
        return self.second or self.first


def cohorts(processes: Iterable[Process]) -> List[Cohort]:
    """The processes by what they do and where, the largest group first."""
    groups: Dict[Tuple[str, str, str, str], List[Process]] = {}
    told: Dict[Tuple[str, str, str, str], Wait] = {}
    for process in processes:
        wait = waits.of(process)
        key = (role(process), *wait.key)
        groups.setdefault(key, []).append(process)
        told.setdefault(key, wait)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [Cohort(told[key], tuple(sorted(members, key=_order))) for key, members in ordered]


def role(process: Process) -> str:
    """What the process is: Ray's class, a rank, or its command without numbers."""
    command = process.command
    if command.startswith("ray::"):
        return command.split(".")[0].split("(")[0].split(" ")[0]
    return re.sub(r"\d+", "0", command) if not process.rank else "rank"


def _order(process: Process) -> Tuple[int, str, int]:
    return (int(process.rank) if process.rank.isdecimal() else -1, process.node, process.pid)


def names(processes: Sequence[Process]) -> str:
    """`rank 3 on n1, pid 7`, or a list of ranks."""
    numbers = sorted({int(process.rank) for process in processes if process.rank.isdecimal()})
    if len(processes) == 1 or any(not process.rank.isdecimal() for process in processes):
        shown = [process.name for process in processes[:SHOWN]]
        more = f" and {len(processes) - SHOWN} more" if len(processes) > SHOWN else ""
        return "; ".join(shown) + more
    return ranks(numbers)


def ranks(numbers: Sequence[int]) -> str:
    """`rank 3`, `ranks 0-2, 5`."""
    return f"rank{'' if len(numbers) == 1 else 's'} {spans(sorted(numbers))}"


def spans(numbers: Sequence[int]) -> str:
    """`0-2, 5`."""
    parts: List[List[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def group_line(group: Cohort) -> str:
    """One group, for people."""
    return f"{group.names}: {does(group)}{where(group)}{_of_several(group)}"


def _of_several(group: Cohort) -> str:
    """Which of its coroutines it is that is told; those of further processes have other names."""
    thread, tasks = group.wait.thread, [one for one in group.members[0].threads if one.is_task]
    if thread is None or not thread.is_task or len(group.members) > 1 or len(tasks) == 1:
        return ""
    return f" ({thread.label}, one of {len(tasks)})"


def is_service(process: Process) -> bool:
    return bool(process.facts.get("service"))


def frozen(view: View) -> Optional[bool]:
    """Whether no process has moved between the samples, and none has begun."""
    if not view.second:
        return None
    return not begun(view) and not any(
        moved(process, view) for process in view.second if not is_service(process)
    )


def begun(view: View) -> List[Process]:
    """Who is in the second sample alone, without those that wait for work."""
    return _alone(view.second, view.first) if view.second else []


def ended(view: View) -> List[Process]:
    """Who is in the first of two samples alone, without those that waited for work."""
    return _alone(view.first, view.second) if view.second else []


def _alone(rows: Sequence[Process], others: Sequence[Process]) -> List[Process]:
    known = {(one.node, one.pid): one for one in others}
    nodes = {one.node for one in others}  # of one that has not answered nothing is known
    mine = [one for one in rows if one.node in nodes and one.threads and not is_service(one)]
    new = [one for one in mine if not _same(one, known.get((one.node, one.pid)))]
    return [one for one in new if not rests(one)]


def rests(process: Process) -> bool:
    """Whether it waits for work; a worker that has only begun does not yet."""
    wait = waits.of(process)
    return wait.kind == IDLE and wait.op != BEGUN and not running(process)


def _same(process: Process, other: Optional[Process]) -> bool:
    """Whether it is that process, and not a later one of the same number."""
    if other is None or (process.node, process.pid) != (other.node, other.pid):
        return False
    when = [one.facts.get("began") for one in (process, other)]
    return not all(when) or when[0] == when[1]


def changes(view: View) -> str:
    """In what the stacks of the samples differ, in words; empty where they do not."""
    before, now = (
        {(one.node, one.pid): one for one in sample} for sample in (view.first, view.second or view.first)
    )
    both = [(before[key], one) for key, one in now.items() if key in before]
    threads = [one for then, one in both if _threads(then).keys() != _threads(one).keys()]
    frames = [
        one for then, one in both
        if any(_threads(then).get(key, stack) != stack for key, stack in _threads(one).items())
    ]  # fmt: skip
    tasks = [one for then, one in both if _coroutines(then) != _coroutines(one)]
    other = [one for key, one in [*before.items(), *now.items()] if (key in before) != (key in now)]
    told = (("processes", other), ("threads of", threads), ("frames of", frames), ("coroutines of", tasks))
    return "; ".join(f"{word} {names(members)}" for word, members in told if members)


def _threads(process: Process) -> Dict[Tuple[int, str], Tuple[Frame, ...]]:
    return {(one.number, one.name): one.frames for one in process.threads if not one.is_task}


def _coroutines(process: Process) -> List[str]:
    """The stacks of its coroutines: one that took the place of another with the same stack is no change."""
    return sorted(repr(thread.frames) for thread in process.threads if thread.is_task)


def moved(process: Process, view: View) -> bool:
    """Whether the process's working thread stands elsewhere, or it has used much of a core in between."""
    before = _before(process, view)
    if before is None:
        return False
    busy = busy_share(process, before) >= BUSY_SHARE and waits.of(process).kind not in ON_RANKS
    return elsewhere(process, view) or busy


def elsewhere(process: Process, view: View) -> bool:
    """Whether its working thread stands elsewhere than in the first sample."""
    before = _before(process, view)
    thread, then = waits.working(process), waits.working(before) if before else None
    return thread is not None and then is not None and thread.frames != then.frames


def running(process: Process) -> List[str]:
    """The threads that run, by their labels."""
    calls = process.facts.get("calls", {})
    return [
        thread.label for thread in process.threads
        if not thread.is_task and (thread.busy or calls.get(str(thread.number)) == "running")
    ]  # fmt: skip


def _before(process: Process, view: View) -> Optional[Process]:
    """The process in the first of two samples."""
    rows = view.first if view.second else ()
    return next((one for one in rows if _same(process, one)), None)


def busy_share(now: Process, before: Process) -> float:
    try:
        seconds = float(now.facts["time"]) - float(before.facts["time"])
        return (float(now.facts["cpu_s"]) - float(before.facts["cpu_s"])) / seconds if seconds > 0 else 0.0
    except (KeyError, TypeError, ValueError):
        return 0.0


def does(group: Cohort) -> str:
    """What the members do, in words."""
    text = phrase(group.wait)[0].format(op=group.wait.op)
    if len({one.rank or (one.node, one.pid, one.source) for one in group.members}) == 1:
        return text
    many = re.sub(r"\bits\b", "their", text.replace("it has", "they have"))
    return f"are{many[2:]}" if many.startswith("is ") else re.sub(r"^(\w+)s\b", r"\1", many)


def at(wait: Wait) -> str:
    """Its place; of a helper with who called it."""
    if wait.place is None:
        return ""
    text = f": `{wait.place.text}`" if wait.place.text else ""
    return f" at {wait.place}{text}{called(wait)}"


def called(wait: Wait) -> str:
    outer = callers.callers(wait) if callers.is_helper(wait) else ()
    return f", called from {outer[0]}" if outer else ""


def where(group: Cohort) -> str:
    """The place of a group; where its members have come there from different lines, with those."""
    place = at(replace(group.wait, thread=None))
    if group.caller:
        return f"{place}, called from {group.caller}"
    said = [f"by {_short(part.members)} from {part.caller}" for part in by_callers(group)]
    return f"{place}, called {' and '.join(said[:SHOWN])}" if said else at(group.wait)


def _short(members: Sequence[Process]) -> str:
    """The ranks alone, or the pids."""
    if all(one.rank.isdecimal() for one in members):
        return ranks(sorted({int(one.rank) for one in members}))
    return ", ".join(f"pid {one.pid}" for one in members[:SHOWN])


def by_callers(group: Cohort) -> List[Cohort]:
    """The members of each line from which the place was called; none where all came the same way."""
    told = [(one, waits.of(one)) for one in group.members]
    ways = [callers.callers(wait) for _, wait in told]
    rows = enumerate(zip(*ways))  # noqa: B905 - Python 3.9; to the shortest
    depth = next((at for at, row in rows if len({(one.function, one.line) for one in row}) > 1), None)
    if depth is None or any(wait.key != group.wait.key for _, wait in told):
        return []
    parts: Dict[Tuple[str, int], List[Tuple[Frame, Process, Wait]]] = {}
    for (one, wait), way in zip(told, ways):  # noqa: B905 - Python 3.9
        frame = way[depth]
        parts.setdefault((frame.function, frame.line), []).append((frame, one, wait))
    ordered = sorted(parts.values(), key=len, reverse=True)
    return [Cohort(rows[0][2], tuple(row[1] for row in rows), rows[0][0]) for rows in ordered]
