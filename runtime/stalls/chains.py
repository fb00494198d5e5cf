"""From a process that waits for another one to that other one, and on to the one that waits for none."""

from __future__ import annotations

import re
from typing import Optional, Sequence, Set, Tuple

from jobspec.runtime.stalls import waits
from jobspec.runtime.stalls.cohorts import View, is_service
from jobspec.runtime.stalls.stacks import Process
from jobspec.runtime.stalls.waits import ON_RANKS

_SOCKET = re.compile(r" on socket (\S+) -> (\S+)")


def behind(process: Process, view: View) -> Optional[Process]:
    """The process at the end of the chain of those that this one is shown to wait for."""
    able = [
        one for one in view.last if one.threads and not is_service(one) and waits.of(one).kind != waits.IDLE
    ]
    end = follow(process, able)
    return end if end is not process and waits.of(end).kind not in ON_RANKS else None


def other_end(process: Process, view: View) -> Optional[Process]:
    """The process at the other end of the connection that this one waits at, whatever it does."""
    if waits.of(process).kind not in (waits.NETWORK, waits.LOOP):
        return None
    others = [one for one in view.last if one.threads and one is not process]
    return _peer(process, others)


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
    if kind in (waits.NETWORK, waits.LOOP):
        return _peer(process, others)
    if kind in (waits.LOADER, waits.QUEUE, waits.CHILD, waits.JOIN, waits.FUTURE, waits.PIPE):
        children = [
            one for one in others if one.node == process.node and one.facts.get("parent") == process.pid
        ]
        rest = [
            one for one in children if waits.of(one).kind != waits.QUEUE or waits.of(one).op == waits.DRAIN
        ]
        return rest[0] if rest else None
    return None


def _peer(process: Process, others: Sequence[Process]) -> Optional[Process]:
    """The other end of the connection that the process waits at; of several connections only where all end at
    one process."""
    thread = waits.working(process)
    call = _SOCKET.search(str(process.facts.get("calls", {}).get(str(thread.number), ""))) if thread else None
    mine = (
        [(call[1], call[2])]
        if call
        else [(row[0], row[1]) for row in process.facts.get("sockets", ()) if row[1]]
    )
    far_ends, ports = {(far, near) for near, far in mine}, {_port(far) for _, far in mine}
    ends = [one for one in others if _has_end(one, far_ends, ports)]
    return ends[0] if len(ends) == 1 or (call and ends) else None


def _has_end(one: Process, ends: Set[Tuple[str, str]], ports: Set[str]) -> bool:
    """Whether the process has one of the ends, or has not taken the connection from its port yet."""
    return any(
        (row[0], row[1]) in ends or (row[2] == "LISTEN" and _port(row[0]) in ports)
        for row in one.facts.get("sockets", ())
    )


def _port(address: str) -> str:
    return address.rsplit(":", 1)[-1]
