"""From a process that waits for another one to that other one, and on to the one that waits for none."""

from __future__ import annotations

import re
from typing import Any, List, Match, Optional, Sequence, Set, Tuple

from jobspec.runtime.stalls import calls, kinds, texts, waits
from jobspec.runtime.stalls.cohorts import View, is_service
from jobspec.runtime.stalls.kinds import ON_RANKS
from jobspec.runtime.stalls.libraries import is_library
from jobspec.runtime.stalls.stacks import Process, Thread

ON_HOLDERS = frozenset({
    kinds.PIPE, kinds.QUEUE, kinds.CHILD, kinds.JOIN, kinds.FUTURE, kinds.LOADER, kinds.FILE_LOCK, kinds.OTHER
})  # fmt: skip
ON_CHILDREN = (kinds.LOADER, kinds.QUEUE, kinds.CHILD, kinds.JOIN, kinds.FUTURE, kinds.PIPE)
_NOBODY = Thread("")
_OF_LOOPS = (kinds.SLEEP, kinds.LOOP)
_OF_LOOP = (kinds.QUEUE, kinds.SLEEP)
_SOCKET = re.compile(r" on socket (\S+) -> (\S+)")


def behind(process: Process, view: View) -> Optional[Process]:
    """The process at the end of the chain of those that this one is shown to wait for."""
    able = [
        one for one in view.last if one.threads and not is_service(one) and waits.of(one).kind != kinds.IDLE
    ]
    end = follow(process, able)
    return end if end is not process and waits.of(end).kind not in ON_RANKS else None


def other_end(process: Process, view: View) -> Optional[Process]:
    """The process at the other end of what this one waits at, whatever it does; maybe itself."""
    wait = waits.of(process)
    if wait.kind == kinds.LOOP or (wait.kind == kinds.NETWORK and not held_by(process)):
        if not at_network(process):
            return None
        return _peer(process, [one for one in view.last if one.threads and one is not process])
    if wait.op == kinds.BATON:
        found = builders(process, view.last)
        return found[0] if len(found) == 1 else None
    if wait.kind not in (*ON_HOLDERS, kinds.NETWORK):
        return None
    if wait.kind == kinds.FILE_LOCK and held_by(process) is None:
        return locker(process, view.last)
    pids = {row[0] for row in held_by(process) or ()}
    ends = [one for one in view.last if one.node == process.node and one.pid in pids]
    return ends[0] if len(ends) == len(pids) == 1 and ends[0].threads else None


def at_network(process: Process) -> bool:
    """Whether it may be a connection that it waits at: not where each of its coroutines waits for others of
    its own loop, nor for a connection that its own client has to give back."""
    wait = waits.of(process)
    told = waits.coroutines(process) if wait.kind == kinds.LOOP else [wait]
    inner = [
        one for one in told if one.op in (kinds.TURN, kinds.SIGNAL, kinds.POOLED) or one.kind in _OF_LOOP
    ]
    return not told or len(inner) < len(told)


def builders(process: Process, others: Sequence[Process]) -> List[Process]:
    """Those that have a lock file of a build open; of its own node, if any there has: caches are shared."""
    found = [one for one in others if one.threads and one is not process and one.facts.get("batons")]
    return [one for one in found if one.node == process.node] or found


def locker(process: Process, others: Sequence[Process]) -> Optional[Process]:
    """The only one of its node that has locked a file whose name ends in `lock`: who tries again and again
    has no such file open between two tries."""
    found = [
        one for one in others
        if one.threads and one is not process and one.node == process.node and one.facts.get("locked")
    ]  # fmt: skip
    return found[0] if len(found) == 1 else None


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
    threads = [
        one for one in process.threads if one is wait.thread or (wait.on_thread and waits.own_frame(one))
    ]
    told = [known[str(one.number)] for one in threads if str(one.number) in known]
    return [row for rows in told for row in rows] if told else None


def copied(process: Process) -> bool:
    """Whether those that have the other end of its pair of sockets wait at others: they may have no more
    than a copy of it, by a fork, and whoever served it may be gone."""
    return any(calls.ELSEWHERE in row[2] for row in held_by(process) or ())


def follow(start: Process, able: Sequence[Process]) -> Process:
    """The process at the end of the chain; of a circle the one at which it closes."""
    seen: Set[Tuple[str, int]] = set()
    now = start
    while (now.node, now.pid) not in seen:
        seen.add((now.node, now.pid))
        nxt = _waits_for(now, able)
        if nxt is None:
            return now
        now = nxt
    return now


def in_circle(process: Process, able: Sequence[Process]) -> bool:
    """Whether the chain from it comes back to it."""
    now = _waits_for(process, able)
    for _ in able:
        if now is None or now is process:
            break
        now = _waits_for(now, able)
    return now is process


def _waits_for(process: Process, able: Sequence[Process]) -> Optional[Process]:
    """The process that this one is shown to wait for."""
    kind = waits.of(process).kind
    others = [one for one in able if one is not process]
    if kind in (kinds.RAY, kinds.PLACEMENT):
        return _in_ray(process, others)
    if kind == kinds.SLEEP:
        return _polled(process, others) if polls(process) else None
    if kind == kinds.LOOP and any(one.kind == kinds.CHILD for one in waits.coroutines(process)):
        kind = kinds.CHILD
    if kind in (kinds.NETWORK, kinds.LOOP):
        if rows := held_by(process) if kind == kinds.NETWORK else None:
            return next((one for one in others if one.node == process.node and one.pid in _pids(rows)), None)
        far = _peer(process, others) if at_network(process) else None
        return far if far is not process else None
    near = [one for one in others if one.node == process.node]
    op = waits.of(process).op
    if op == kinds.BATON:
        building = builders(process, near)
        return building[0] if len(building) == 1 else None
    if op in kinds.ON_PEOPLE:
        return None
    if op == kinds.RPC:
        return _asked(process, others)
    rows = held_by(process)
    if kind == kinds.FILE_LOCK and rows is None:
        return locker(process, near)
    told = [one for one in near if one.pid in _pids(rows or ())]
    if told:
        passive = told if kind in (kinds.PIPE, kinds.LOADER) else _at_managers(told)
        rest = [one for one in told if acts(one)] or passive
        return rest[0] if rest else None
    if kind == kinds.LOCK:
        return next((one for one in near if _shares(process, one) and _has_lock(process, one)), None)
    if rows == [] or kind not in ON_CHILDREN:
        return None
    children = [one for one in near if one.facts.get("parent") == process.pid]
    return next((one for one in children if acts(one)), None)


def _in_ray(process: Process, others: Sequence[Process]) -> Optional[Process]:
    """The actor or task that it waits for: whose method its lines name, else one that waits for none."""
    running = [one for one in others if one.command.startswith("ray::") and waits.of(one).place is not None]
    lines = " ".join(frame.text for thread in process.threads for frame in thread.frames)
    named = [
        one for one in running if re.search(rf"\b{re.escape(_method(one))}\.(?:remote|options)\b", lines)
    ]
    leaves = [one for one in running if waits.of(one).kind not in (kinds.RAY, kinds.LOOP)]
    return next(iter(named or leaves or running), None)


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
    return (
        name not in ("", kinds.SIGNAL, kinds.NATIVE)
        and waits.holds(other, name)
        and not waits.holds(process, name)
    )


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


def _peer(process: Process, others: Sequence[Process]) -> Optional[Process]:
    """The other end of the connection that the process waits at, maybe itself; of several connections only
    where all end at one process."""
    call = _socket(process)
    if call:
        far, near = (call[2], call[1])
        every = [*others, process]
        ends = [one for one in every if _has_end(one, {(far, near)}, set())]
        if ends:
            return ends[0]
        ends = [one for one in every if _has_end(one, set(), {_port(far)})]  # nobody has taken it yet
        if process in ends and len(ends) > 2:  # shared by forks: it may be any of them
            return None
        return next((one for one in ends if not _awaits(one, process)), None)
    if _at_other_socket(process):
        return None
    mine = [(row[0], row[1]) for row in process.facts.get("sockets", ()) if row[1]]
    far_ends, ports = {(far, near) for near, far in mine}, {_port(far) for _, far in mine}
    ends = [one for one in others if not _are_joined(process, one) and _has_end(one, far_ends, ports)]
    return ends[0] if len(ends) == 1 else None


def _awaits(parent: Process, child: Process) -> bool:
    """Whether the parent waits for such as the child, and so takes no connection of it."""
    return child.facts.get("parent") == parent.pid and waits.of(parent).kind in ON_CHILDREN


def _at_other_socket(process: Process) -> bool:
    """Whether the kernel shows a socket that has no address, such as one of a pair."""
    thread = waits.of(process).thread
    call = str(process.facts.get("calls", {}).get(str(thread.number), "")) if thread else ""
    return call.endswith((" on socket", " on socket "))


def _are_joined(one: Process, other: Process) -> bool:
    """Whether they have connections to each other anyway: ranks, and processes of Ray."""
    ray = [
        who.command.startswith("ray::") or waits.of(who).kind in (kinds.RAY, kinds.PLACEMENT)
        for who in (one, other)
    ]
    return bool(one.rank and other.rank) or all(ray)


def _socket(process: Process) -> Optional[Match[str]]:
    """The connection at which its working thread waits, or the one for which that waits."""
    thread = waits.of(process).thread
    calls = process.facts.get("calls", {})
    return _SOCKET.search(str(calls.get(str(thread.number), ""))) if thread else None


def _has_end(one: Process, ends: Set[Tuple[str, str]], ports: Set[str]) -> bool:
    """Whether the process has one of the ends, or has not taken the connection from its port yet."""
    return any(
        (row[0], row[1]) in ends or (row[2] == "LISTEN" and _port(row[0]) in ports)
        for row in one.facts.get("sockets", ())
    )


def _port(address: str) -> str:
    return address.rsplit(":", 1)[-1]
