"""The other end of the connection of the network at which a process waits."""

from __future__ import annotations

import re
from typing import List, Match, Optional, Sequence, Set, Tuple

from jobspec.runtime.stalls import kinds, waits
from jobspec.runtime.stalls.hops import CONNECTED, Hop, lead
from jobspec.runtime.stalls.stacks import Process, Thread

ON_CHILDREN = (kinds.LOADER, kinds.QUEUE, kinds.CHILD, kinds.JOIN, kinds.FUTURE, kinds.PIPE)
_SOCKET = re.compile(r" on socket (\S+) -> (\S+)")
_ANY_HOST = ("0.0.0.0", "::")


def peer(process: Process, others: Sequence[Process]) -> Optional[Hop]:
    """The other end of the connection that the process waits at, maybe itself; of several connections only
    where all end at one process."""
    call = _socket(process)
    if call:
        far, near = (call[2], call[1])
        every = [*others, process]
        ends = [one for one in every if _has_end(one, {(far, near)})]
        if ends:
            return Hop(ends[0], len(ends) == 1, lead("", many=len(ends) > 1))
        ends = [one for one in every if _listens(one, {far}, process, every)]  # nobody has taken it yet
        if process in ends and len(ends) > 2:  # shared by forks: it may be any of them
            return None
        left = [one for one in ends if not _awaits(one, process)]
        return Hop(left[0], len(left) == 1, "at the other end listens") if left else None
    if _at_other_socket(process):
        return None
    mine = [(row[0], row[1]) for row in process.facts.get("sockets", ()) if row[1]]
    far_ends, addresses = {(far, near) for near, far in mine}, {far for _, far in mine}
    ends = [
        one for one in others
        if not _are_joined(process, one)
        and (_has_end(one, far_ends) or _listens(one, addresses, process, [*others, process]))
    ]  # fmt: skip
    return Hop(ends[0], shown=False, lead=CONNECTED) if len(ends) == 1 else None


def in_hand(process: Process, other: Process) -> List[Thread]:
    """The threads of the other one that are in a call on the connection at which the process waits; where
    only its event loop waits, on any that it has. Of sockets without an address the kernel tells whom a
    thread waits for."""
    call = _socket(process)
    rows = process.facts.get("sockets", ())
    mine = {(call[1], call[2])} if call else {(row[0], row[1]) for row in rows if row[1]}
    found = []
    for thread in other.threads:
        number = str(thread.number)
        at = str(other.facts.get("calls", {}).get(number, ""))
        pair = _SOCKET.search(at)
        behind = other.facts.get("behind", {}).get(number, ()) if at.endswith(" on socket") else ()
        if (pair and (pair[2], pair[1]) in mine) or [row[0] for row in behind] == [process.pid]:
            found += [] if thread.is_task else [thread]
    return found


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


def _has_end(one: Process, ends: Set[Tuple[str, str]]) -> bool:
    return any((row[0], row[1]) in ends for row in one.facts.get("sockets", ()))


def _listens(one: Process, addresses: Set[str], asker: Process, every: Sequence[Process]) -> bool:
    """Whether it listens at one of the addresses, or at that port of all addresses of its host: those that
    processes of its node have."""
    near = [who for who in every if who.node == one.node]
    known = {_host(row[0]) for who in near for row in who.facts.get("sockets", ()) if row[2] != "LISTEN"}
    at = [row[0] for row in one.facts.get("sockets", ()) if row[2] == "LISTEN"]
    for host, port in (address.rsplit(":", 1) for address in addresses):
        local = host.startswith("127.") or host == "::1"
        mine = {host, *(_ANY_HOST if local or host in known else ())}
        if (asker.node == one.node or not local) and any(f"{name}:{port}" in at for name in mine):
            return True
    return False


def _host(address: str) -> str:
    return address.rsplit(":", 1)[0]
