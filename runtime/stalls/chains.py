"""From a process that waits for another one to that other one, and on to the one that waits for none."""

from __future__ import annotations

import re
from typing import Any, List, Match, Optional, Sequence, Set, Tuple

from jobspec.runtime.stalls import waits
from jobspec.runtime.stalls.cohorts import View, is_service
from jobspec.runtime.stalls.stacks import Process
from jobspec.runtime.stalls.waits import ON_RANKS

ON_HOLDERS = frozenset({
    waits.PIPE, waits.QUEUE, waits.CHILD, waits.JOIN, waits.FUTURE, waits.LOADER, waits.FILE_LOCK, waits.OTHER
})  # fmt: skip
ON_CHILDREN = (waits.LOADER, waits.QUEUE, waits.CHILD, waits.JOIN, waits.FUTURE, waits.PIPE)
_SOCKET = re.compile(r" on socket (\S+) -> (\S+)")


def behind(process: Process, view: View) -> Optional[Process]:
    """The process at the end of the chain of those that this one is shown to wait for."""
    able = [
        one for one in view.last if one.threads and not is_service(one) and waits.of(one).kind != waits.IDLE
    ]
    end = follow(process, able)
    return end if end is not process and waits.of(end).kind not in ON_RANKS else None


def other_end(process: Process, view: View) -> Optional[Process]:
    """The process at the other end of what this one waits at, whatever it does; maybe itself."""
    wait = waits.of(process)
    if wait.kind in (waits.NETWORK, waits.LOOP):
        others = [one for one in view.last if one.threads and one is not process]
        alone = _peer(process, others) is None and wait.op != waits.STORE and _socket(process) is not None
        return _peer(process, [process] if alone else others)
    if wait.op == waits.BATON:
        found = builders(process, view.last)
        return found[0] if len(found) == 1 else None
    if wait.kind not in ON_HOLDERS:
        return None
    pids = {row[0] for row in held_by(process) or ()}
    ends = [one for one in view.last if one.node == process.node and one.pid in pids]
    return ends[0] if len(ends) == len(pids) == 1 and ends[0].threads else None


def builders(process: Process, others: Sequence[Process]) -> List[Process]:
    """Those that have a lock file of a build open; of its own node, if any there has: caches are shared."""
    found = [one for one in others if one.threads and one is not process and one.facts.get("batons")]
    return [one for one in found if one.node == process.node] or found


def held_by(process: Process) -> Optional[List[List[Any]]]:
    """(pid, command, call) of those that could end the wait, by the kernel; None where it does not tell."""
    wait = waits.of(process)
    if wait.op == waits.BATON:  # no lock of the kernel's
        return None
    known = process.facts.get("behind", {})
    inner = wait.kind in (waits.JOIN, waits.FUTURE)  # then it is for one of its threads that it waits
    threads = [one for one in process.threads if one is wait.thread or (inner and waits.own_frame(one))]
    told = [known[str(one.number)] for one in threads if str(one.number) in known]
    return [row for rows in told for row in rows] if told else None


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


def _waits_for(process: Process, able: Sequence[Process]) -> Optional[Process]:
    """The process that this one is shown to wait for."""
    kind = waits.of(process).kind
    others = [one for one in able if one is not process]
    if kind in (waits.RAY, waits.PLACEMENT):
        running = [
            one for one in others if one.command.startswith("ray::") and waits.of(one).place is not None
        ]
        leaves = [one for one in running if waits.of(one).kind not in (waits.RAY, waits.LOOP)] or running
        return leaves[0] if leaves else None
    if kind == waits.LOOP and any(one.kind == waits.CHILD for one in waits.coroutines(process)):
        kind = waits.CHILD
    if kind in (waits.NETWORK, waits.LOOP):
        return _peer(process, others)
    near = [one for one in others if one.node == process.node]
    op = waits.of(process).op
    if op == waits.BATON:
        building = builders(process, near)
        return building[0] if len(building) == 1 else None
    if op in waits.ON_PEOPLE:
        return None
    rows = held_by(process)
    told = [one for one in near if one.pid in {row[0] for row in rows or ()}]
    if told:
        rest = [one for one in told if acts(one)] or (told if kind in (waits.PIPE, waits.LOADER) else [])
        return rest[0] if rest else None
    if kind == waits.LOCK:
        return next((one for one in near if _shares(process, one) and _has_lock(process, one)), None)
    if rows == [] or kind not in ON_CHILDREN:
        return None
    children = [one for one in near if one.facts.get("parent") == process.pid]
    return next((one for one in children if acts(one)), None)


def _shares(one: Process, other: Process) -> bool:
    """Whether they may share a lock: one has started the other, or a third one both."""
    parents = (one.facts.get("parent"), other.facts.get("parent"))
    related = parents[0] == parents[1] or other.pid == parents[0] or one.pid == parents[1]
    return related and not (one.rank and other.rank)


def _has_lock(process: Process, other: Process) -> bool:
    """Whether the other one holds what this one waits for, and none of its own threads does, by the text."""
    name = waits.of(process).op
    return bool(name) and waits.holds(other, name) and not waits.holds(process, name)


def acts(process: Process) -> bool:
    """Whether it does more than wait at a queue or a pipe of which others have the other end."""
    wait = waits.of(process)
    passive = wait.kind in (waits.QUEUE, waits.PIPE) and wait.op not in (
        waits.DRAIN,
        waits.UNDONE,
        *waits.ON_PEOPLE,
    )
    return not passive or held_by(process) == []


def _peer(process: Process, others: Sequence[Process]) -> Optional[Process]:
    """The other end of the connection that the process waits at; of several connections only where all end at
    one process."""
    call = _socket(process)
    mine = (
        [(call[1], call[2])]
        if call
        else [(row[0], row[1]) for row in process.facts.get("sockets", ()) if row[1]]
    )
    far_ends, ports = {(far, near) for near, far in mine}, {_port(far) for _, far in mine}
    ends = [one for one in others if _has_end(one, far_ends, ports)]
    return ends[0] if len(ends) == 1 or (call and ends) else None


def _socket(process: Process) -> Optional[Match[str]]:
    """The connection at which its working thread waits."""
    thread = waits.working(process)
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
