"""Who is at the other end of what a process waits at, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, List, Optional, Sequence, Tuple

from jobspec.runtime.stalls import kinds, waits
from jobspec.runtime.stalls.calls import ELSEWHERE
from jobspec.runtime.stalls.chains import (
    ON_HOLDERS,
    builders,
    copied,
    has_further_threads,
    has_own_end,
    held_by,
    may_be_own,
    other_end,
)
from jobspec.runtime.stalls.cohorts import SHOWN, Cohort, View, at, does, where
from jobspec.runtime.stalls.hops import CONNECTED, Hop, call_of, lead
from jobspec.runtime.stalls.inner import and_threads, only_programs, other_threads, within
from jobspec.runtime.stalls.peers import in_hand
from jobspec.runtime.stalls.stacks import Process, Thread
from jobspec.runtime.stalls.waits import Wait


def far(members: Sequence[Process], view: View) -> str:
    """Who is at the other end of what the first of them waits at; of several that it is told for that one."""
    process = members[0]
    told = _far(process, members, view)
    same = [_far(other, members, view) == told for other in members[1:]]
    return told if all(same) or not told.startswith("; ") else f"; {process.name}: {told[2:]}"


def _far(process: Process, members: Sequence[Process], view: View) -> str:
    hop = other_end(process, view)
    wait = waits.of(process)
    if hop is None:
        return _of_rows(process, wait, view)
    if hop.to is process:
        locked = wait.kind == kinds.FILE_LOCK
        return "; the process itself holds it" if locked else f"; {hop.lead} the process itself"
    return _of_one(process, hop, members, view)


def _of_one(process: Process, hop: Hop, members: Sequence[Process], view: View) -> str:
    """The one process at the other end, what it does, and for whom that waits."""
    theirs, beyond = _there(process, hop, view)
    if theirs is None:
        first = waits.of(hop.to)
        every = and_threads(hop.to, [first, *other_threads(hop.to, first)])
        return f"; {hop.lead} {hop.to.name}; in {hop.to.name} {every}"
    there = Cohort(theirs, (hop.to,))
    told = f"; {hop.lead} {hop.to.name}, which {does(there)}{where(there)}"
    if beyond is None or beyond.to is hop.to:
        return told
    if beyond.to is not process:
        return f"{told}{_next(beyond, theirs, view)}"
    if copied(process):
        return f"{told}; that is another pipe: a fork may have left it this end"
    if not hop.shown and (hop.lead == CONNECTED or may_be_own(process)):
        return told
    more = _threads_of(process, hop.to)
    seems = "waits" if hop.shown and beyond.shown and not more else "seems to wait"
    return f"{'' if hop.to in members else told}: each {seems} for the other{more}"


def _there(process: Process, hop: Hop, view: View) -> Tuple[Optional[Wait], Optional[Hop]]:
    """What the other end does, and for whom it waits in that. Of a connection the thread tells that is in a
    call on it, else the one that answers a request. None where any of several threads may have it."""
    theirs = waits.of(hop.to)
    if waits.of(process).kind not in (kinds.NETWORK, kinds.LOOP):
        return theirs, other_end(hop.to, view)
    on_it = in_hand(process, hop.to)
    threads = on_it or [one for one in hop.to.threads if waits.answers(one)]
    told = {wait.key: wait for one in threads for wait in [waits.of_thread(hop.to, one)]}
    if len(told) > 1 or (not told and theirs.kind == kinds.IDLE and other_threads(hop.to, theirs)):
        return None, None
    if on_it:
        both = _reads(process, waits.of(process).thread) == _reads(hop.to, on_it[0])
        found = next(iter(told.values()))
        # A handler that reads its next request may have the first part of one.
        found = replace(found, kind=kinds.NETWORK, op="") if found.kind == kinds.IDLE else found
        return found, Hop(process, shown=True) if both else None
    same = not told or threads == [theirs.thread]
    found = next(iter(told.values())) if told else within(hop.to, theirs, None)[0]
    return found, other_end(hop.to, view) if same else None


def _reads(process: Process, thread: Optional[Thread]) -> bool:
    """Whether the thread reads at what its call is on."""
    call = str(process.facts.get("calls", {}).get(str(thread.number), "")) if thread else ""
    return call.startswith(("read", "recv"))


def _threads_of(*processes: Process) -> str:
    """What the other threads of both do, of which one may be who does not answer."""
    return "".join(
        f"; in {one.name} {and_threads(one, others)}"
        for one in processes
        if (others := other_threads(one, waits.of(one))) and has_further_threads(one)
    )


def _next(hop: Hop, wait: Wait, view: View) -> str:
    """Who is at the other end of that."""
    if not hop.shown:
        return ""
    who = "that lock is held by" if wait.kind == kinds.FILE_LOCK else "the other end of that is"
    there = waits.of(hop.to)
    return f"; {who} {hop.to.name}, which {does(Cohort(there, (hop.to,)))}{at(there)}"


def _of_rows(process: Process, wait: Wait, view: View) -> str:
    """Those that could end the wait, where that is not one process of the dump."""
    if wait.op == kinds.BATON and not builders(process, view.last):
        return "; no process that was seen has such a file open"
    if (wait.kind, wait.op) == (kinds.LOCK, kinds.PROXY):
        through = [pid for pid, *_ in held_by(process) or ()]
        manager = f", and pid {through[0]} is the manager through which it waits" if len(through) == 1 else ""
        return f"; no process that was seen is shown to hold it{manager}"
    streams = wait.kind == kinds.LOOP and (
        only_programs(process) or any(one.kind == kinds.CHILD for one in waits.coroutines(process))
    )
    rows = held_by(process) if streams or wait.kind in ON_HOLDERS else None
    if rows is None:
        return ""
    if not rows and wait.kind == kinds.OTHER:
        return ""
    if not rows:
        own = ", but this one has it itself" if has_own_end(process) else ""
        return f"; no other process that was seen has the other end{own}"
    told = lead(call_of(process), many=len(rows) > 1, elsewhere=copied(process))
    if may_be_own(process):
        told = f"the process has the other end itself, as {'have' if len(rows) > 1 else 'has'}"
    if wait.on_thread:
        told = "behind it is" if len(rows) == 1 else "behind it are"
    return f"; {told} {_holders(rows, process, view)}"


def behind_thread(process: Process, wait: Wait, view: View) -> str:
    """For whom the thread waits that the process waits for."""
    thread = wait.thread if wait.kind != kinds.STOPPED else None
    number = str(thread.number) if thread else ""
    rows = process.facts.get("behind", {}).get(number)
    call = str(process.facts.get("calls", {}).get(number, ""))
    elsewhere = any(ELSEWHERE in row[2] for row in rows or ())
    told = lead(call, many=len(rows or ()) > 1, elsewhere=elsewhere)
    return f"; {told} {_holders(rows, process, view)}" if rows else ""


def _holders(rows: Sequence[Sequence[Any]], process: Process, view: View) -> str:
    """Processes with their command and system call, and for whom they wait themselves."""
    ranked = {one.pid: f"rank {one.rank}, " for one in view.last if one.node == process.node and one.rank}
    said: List[str] = []
    for pid, command, call, *further in rows[:SHOWN]:
        program = " ".join(str(command).split())
        one = f"{ranked.get(pid, '')}pid {pid} (`{program}`{f', {call}' if call else ''})"
        beyond: Optional[Sequence[Sequence[Any]]] = further[0] if further else None
        if beyond:
            own = str(call).startswith("wait")
            link = "which waits for" if own else f"where {lead(str(call), many=len(beyond) > 1)}"
            one += f", {link} {_holders(beyond, process, view)}"
        said.append(f"pid {pid} itself" if pid == process.pid else one)
    return " and ".join(said)
