"""From a process that waits for another one to that other one, and on to the one that waits for none."""

from __future__ import annotations

import re
from typing import Any, List, Optional, Sequence, Set, Tuple

from jobspec.runtime.stalls import calls, kinds, texts, waits
from jobspec.runtime.stalls.cohorts import View, is_service
from jobspec.runtime.stalls.hops import AT_PTY, OF_MANY, Hop, call_of, lead
from jobspec.runtime.stalls.kinds import ON_RANKS
from jobspec.runtime.stalls.libraries import is_library
from jobspec.runtime.stalls.peers import ON_CHILDREN, peer
from jobspec.runtime.stalls.stacks import Process, Thread

ON_HOLDERS = frozenset({
    kinds.PIPE, kinds.QUEUE, kinds.CHILD, kinds.JOIN, kinds.FUTURE, kinds.LOADER, kinds.FILE_LOCK, kinds.OTHER
})  # fmt: skip
_NOBODY = Thread("")
_OF_LOOPS = (kinds.SLEEP, kinds.LOOP)
_OF_LOOP = (kinds.QUEUE, kinds.SLEEP)
_OF_PROGRAMS = (kinds.CHILD, kinds.PIPE)


def behind(process: Process, view: View) -> Optional[Hop]:
    """The process at the end of the chain of those that this one waits for; whether each step is shown."""
    end = _last(process, [one for one in view.last if one.threads and not is_service(one)])
    return end if end.to is not process and waits.of(end.to).kind not in ON_RANKS else None


def other_end(process: Process, view: View) -> Optional[Hop]:
    """The process at the other end of what this one waits at, whatever it does; maybe itself."""
    wait = waits.of(process)
    if wait.kind == kinds.LOOP or (wait.kind == kinds.NETWORK and not held_by(process)):
        if not at_network(process):
            return None
        return peer(process, [one for one in view.last if one.threads and one is not process])
    if wait.op == kinds.BATON:
        found = builders(process, view.last)
        return Hop(found[0], shown=False, lead="such a file is open in") if len(found) == 1 else None
    if wait.kind not in (*ON_HOLDERS, kinds.NETWORK):
        return None
    if wait.kind == kinds.FILE_LOCK and held_by(process) is None:
        return locker(process, view.last)
    pids = {row[0] for row in held_by(process) or ()}
    ends = [one for one in view.last if one.node == process.node and one.pid in pids]
    if not len(ends) == len(pids) == 1 or not ends[0].threads:
        return None
    told = "behind it is" if wait.on_thread else lead(call_of(process), elsewhere=copied(process))
    told = "the process has the other end itself, as has" if may_be_own(process) else told
    return Hop(ends[0], is_exact(process), told)


def is_exact(process: Process) -> bool:
    """Whether the kernel names the one process that can end the wait: of several pipes of which one is
    enough, it does not tell which."""
    rows, call = held_by(process), call_of(process)
    one = rows is not None and len(rows) == 1 and not call.startswith(OF_MANY) and AT_PTY not in call
    return one and not may_be_own(process)


def may_be_own(process: Process) -> bool:
    """Whether a thread of its own could end the wait: they have the other end, too."""
    return has_own_end(process) and has_further_threads(process)


def has_further_threads(process: Process) -> bool:
    """Whether other threads of the program run in it than the one that waits."""
    return bool(_its_threads(process))


def has_own_end(process: Process) -> bool:
    """Whether it has the other end of what it waits at open itself."""
    thread = waits.of(process).thread
    return thread is not None and str(thread.number) in process.facts.get("own_ends", ())


def at_network(process: Process) -> bool:
    """Whether it may be a connection that it waits at: not where each of its coroutines waits for others of
    its own loop, nor for a connection that its own client has to give back."""
    wait = waits.of(process)
    told = waits.coroutines(process) if wait.kind == kinds.LOOP else [wait]
    inner = [
        one
        for one in told
        if one.op in (kinds.TURN, kinds.SIGNAL, kinds.POOLED) or one.kind in (*_OF_LOOP, *_OF_PROGRAMS)
    ]
    return not told or len(inner) < len(told)


def builders(process: Process, others: Sequence[Process]) -> List[Process]:
    """Those that have a lock file of a build open; of its own node, if any there has: caches are shared."""
    found = [one for one in others if one.threads and one is not process and one.facts.get("batons")]
    return [one for one in found if one.node == process.node] or found


def locker(process: Process, others: Sequence[Process]) -> Optional[Hop]:
    """The only one of its node that has locked a file whose name ends in `lock`: who tries again and again
    has no such file open between two tries. A soft lock is its file alone, which nobody has locked."""
    wait = waits.of(process)
    if wait.place is not None and "Soft" in wait.place.text:
        return None
    found = [
        one for one in others
        if one.threads and one is not process and one.node == process.node and one.facts.get("locked")
    ]  # fmt: skip
    if len(found) != 1:
        return None
    files = " and ".join(f"`{path.rsplit('/', 1)[-1]}`" for path in found[0].facts["locked"][:2])
    return Hop(found[0], shown=False, lead=f"{files} {'is' if files.count('`') == 2 else 'are'} locked by")


def held_by(process: Process) -> Optional[List[List[Any]]]:
    """(pid, command, call) of those that could end the wait, by the kernel; None where it does not tell."""
    wait = waits.of(process)
    if wait.op == kinds.BATON:  # no lock of the kernel's
        return None
    known = process.facts.get("behind", {})
    if wait.kind == kinds.LOOP:  # before Python 3.12 a thread of asyncio waits for each program
        calls = process.facts.get("calls", {})
        main = [str(wait.thread.number)] if wait.thread else []
        at = [name for name in known if name in main or str(calls.get(name, "")).startswith("wait")]
        return list({row[0]: row for name in at for row in known[name]}.values()) or None
    threads = _its_threads(process) if wait.on_thread else [wait.thread] if wait.thread else []
    if wait.on_thread and any(str(one.number) not in known for one in threads):
        return None  # it may wait for that one
    told = [known[str(one.number)] for one in threads if str(one.number) in known]
    return [row for rows in told for row in rows] if told else None


def _its_threads(process: Process) -> List[Thread]:
    """The other threads of the program, for one of which it waits."""
    return [
        one for one in process.threads
        if one is not waits.of(process).thread and not one.is_task and waits.own_frame(one)
    ]  # fmt: skip


def copied(process: Process) -> bool:
    """Whether those that have the other end of its pair of sockets wait at others: they may have no more
    than a copy of it, by a fork, and whoever served it may be gone."""
    return any(calls.ELSEWHERE in row[2] for row in held_by(process) or ())


def follow(start: Process, every: Sequence[Process]) -> Process:
    """The process at the end of the chain; of a circle the one at which it closes."""
    return _last(start, every).to


def _last(start: Process, every: Sequence[Process]) -> Hop:
    """The same, and whether each step to it is shown."""
    seen: Set[Tuple[str, int]] = set()
    now, shown = start, True
    while (now.node, now.pid) not in seen:
        seen.add((now.node, now.pid))
        hop = waits_for(now, every)
        if hop is None:
            break
        now, shown = hop.to, shown and hop.shown
    return Hop(now, shown)


def in_circle(process: Process, every: Sequence[Process]) -> bool:
    """Whether the chain from it comes back to it."""
    hop = waits_for(process, every)
    for _ in every:
        if hop is None or hop.to is process:
            break
        hop = waits_for(hop.to, every)
    return hop is not None and hop.to is process


def _guess(found: Optional[Process]) -> Optional[Hop]:
    return Hop(found, shown=False) if found is not None else None


def waits_for(process: Process, every: Sequence[Process]) -> Optional[Hop]:
    """The process that this one waits for; none where that one has nothing to do."""
    kind = waits.of(process).kind
    others = [one for one in every if one is not process and waits.of(one).kind != kinds.IDLE]
    if kind in (kinds.STOPPED, kinds.DISK, kinds.BUSY):
        return None
    if kind in (kinds.RAY, kinds.PLACEMENT):
        return _in_ray(process, others)
    if kind == kinds.SLEEP:
        return _guess(_polled(process, others) if polls(process) else None)
    if kind == kinds.LOOP and any(one.kind in _OF_PROGRAMS for one in waits.coroutines(process)):
        kind = kinds.CHILD
    if kind in (kinds.NETWORK, kinds.LOOP):
        if rows := held_by(process) if kind == kinds.NETWORK else None:
            ends = [one for one in others if one.node == process.node and one.pid in _pids(rows)]
            return Hop(ends[0], is_exact(process)) if ends else None
        far = peer(process, [one for one in every if one is not process]) if at_network(process) else None
        return far if far is not None and far.to in others else None
    near = [one for one in others if one.node == process.node]
    op = waits.of(process).op
    if op == kinds.BATON:
        building = builders(process, near)
        return _guess(building[0] if len(building) == 1 else None)
    if op in kinds.ON_PEOPLE:
        return None
    if op == kinds.RPC:
        return _guess(_asked(process, others))
    rows = held_by(process)
    if kind == kinds.FILE_LOCK and rows is None:
        return locker(process, near)
    told = [one for one in near if one.pid in _pids(rows or ())]
    if told:
        passive = told if kind in (kinds.PIPE, kinds.LOADER) else _at_managers(told)
        rest = [one for one in told if acts(one)] or passive
        return Hop(rest[0], is_exact(process)) if rest else None
    if kind == kinds.LOCK:
        return _guess(next((one for one in near if _shares(process, one) and _has_lock(process, one)), None))
    on_own = waits.of(process).on_thread and _its_threads(process)
    if rows == [] or kind not in ON_CHILDREN or on_own:
        return None
    children = [one for one in near if one.facts.get("parent") == process.pid]
    return _guess(next((one for one in children if acts(one)), None))


def _in_ray(process: Process, others: Sequence[Process]) -> Optional[Hop]:
    """The actor or task that it waits for: whose method its lines name, else one that waits for none."""
    running = [one for one in others if one.command.startswith("ray::") and waits.of(one).place is not None]
    lines = " ".join(frame.text for thread in process.threads for frame in thread.frames)
    named = [
        one for one in running if re.search(rf"\b{re.escape(_method(one))}\.(?:remote|options)\b", lines)
    ]
    steady = [one for one in running if not polls(one)]
    leaves = [one for one in steady if waits.of(one).kind not in (kinds.RAY, kinds.LOOP)]
    found = next(iter(named or leaves or steady or running), None)
    return Hop(found, shown=len(named) == 1) if found is not None else None


def _asked(process: Process, others: Sequence[Process]) -> Optional[Process]:
    """The one that answers a call of torch RPC; of several the one whose function the asker's lines name."""
    lines = " ".join(frame.text for thread in process.threads for frame in thread.frames)
    found = [(one, names) for one in others if (names := _answered(one))]
    named = [row for row in found if any(re.search(rf"\b{name}\b", lines) for name in row[1])]
    return next((rows[0][0] for rows in (found, named) if len(rows) == 1), None)


def _answered(process: Process) -> List[str]:
    """The functions of the program that its threads run for calls of torch RPC."""
    return [
        frame.function.rsplit(".", 1)[-1]
        for thread in process.threads
        if any(frame.file.endswith("rpc/internal.py") for frame in thread.frames)
        for frame in thread.frames
        if not is_library(frame) and re.fullmatch(r"[\w.]+", frame.function)
    ]


def _method(process: Process) -> str:
    """`score` of the title `ray::Reward.score`."""
    return re.split(r"::|\.", process.command.split(" ", 1)[0].split("(", 1)[0])[-1]


def polls(process: Process) -> bool:
    """Whether it sleeps for a moment only, by the number in its line."""
    return texts.naps(waits.of(process).place) and not process.rank


def _polled(process: Process, others: Sequence[Process]) -> Optional[Process]:
    """A worker of Ray or a child that stands, and neither sleeps nor has nothing to do, while it polls."""
    ray = not process.command.startswith("ray::")
    mine = [
        one for one in others
        if (one.node == process.node and one.facts.get("parent") == process.pid)
        or (ray and one.command.startswith("ray::"))
    ]  # fmt: skip
    stands = (one for one in mine if waits.of(one).kind not in _OF_LOOPS and acts(one))
    return next((one for one in stands if waits.of(one).place is not None), None)


def _pids(rows: Sequence[Sequence[Any]]) -> Set[int]:
    """Those that could end a wait, with those for whom a shell among them waits."""
    return {pid for row in rows for pid in (row[0], *(_pids(row[3]) if len(row) > 3 else ()))}


def _at_managers(processes: Sequence[Process]) -> List[Process]:
    """Those that wait for an object of a manager, which waits for none of them."""
    return [one for one in processes if waits.of(one).op == kinds.PROXY]


def _shares(one: Process, other: Process) -> bool:
    """Whether they may share a lock: one has started the other, or a third one both."""
    parents = (one.facts.get("parent"), other.facts.get("parent"))
    related = parents[0] == parents[1] or other.pid == parents[0] or one.pid == parents[1]
    return related and not (one.rank and other.rank)


def _has_lock(process: Process, other: Process) -> bool:
    """Whether the other one holds what this one waits for, and none of its own threads does, by the text."""
    wait = waits.of(process)
    name = texts.wanted_lock(wait.place.text) if wait.op == kinds.PROXY and wait.place else wait.op
    return name not in kinds.NO_NAMES and waits.holds(other, name) and not waits.holds(process, name)


def acts(process: Process) -> bool:
    """Whether it does more than wait at a queue or a pipe of which others have the other end."""
    wait = waits.of(process)
    passive = wait.kind in (kinds.QUEUE, kinds.PIPE) and wait.op not in (
        kinds.DRAIN,
        kinds.UNDONE,
        *kinds.ON_PEOPLE,
    )
    thread = str(wait.thread.number) if wait.thread else ""
    named = "FIFO" in str(process.facts.get("calls", {}).get(thread, ""))  # which no pool uses
    own = any(re.search(r"(?:^|/)queue\.py$", frame.file) for frame in (wait.thread or _NOBODY).frames)
    return not passive or named or own or held_by(process) == []
