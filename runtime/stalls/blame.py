"""What one process does, or several that do the same: the explanation that blames them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional, Sequence, Tuple

from jobspec.runtime.stalls import kinds, texts, waits
from jobspec.runtime.stalls.chains import ON_HOLDERS, behind, builders, copied, held_by, other_end
from jobspec.runtime.stalls.cohorts import SHOWN, Cohort, View, at, called, does, moved, where
from jobspec.runtime.stalls.libraries import is_library
from jobspec.runtime.stalls.phrases import DOES, SPECIAL, phrase
from jobspec.runtime.stalls.stacks import Frame, Process, Thread
from jobspec.runtime.stalls.waits import Wait


@dataclass(frozen=True)
class Explanation:
    """The first cause of a stall as far as the dumps show it. `named` are the processes that it blames."""

    kind: str
    what: str
    why: str = ""
    fix: str = ""
    blocked: bool = True
    inferred: bool = False
    named: Tuple[Process, ...] = ()
    frame: Optional[Frame] = None
    cohorts: Tuple[Cohort, ...] = ()
    frozen: Optional[bool] = None  # whether nothing moved between the two samples; None with one
    node: str = ""


MOST_THREADS = 3  # in a sentence
_FAR = {
    kinds.FILE_LOCK: "it is held by", kinds.BATON: "such a file is open in", kinds.CHILD: "that is",
    kinds.PROCESS: "that is", kinds.JOIN: "behind it is", kinds.FUTURE: "behind it is",
}  # fmt: skip
_ACQUIRES = re.compile(r"(?:^|\.)_?(?:acquire\w*|__enter__)$")
_ENTERS = re.compile(r"(?:^|/)threading\.py:(?:Condition\.)?__enter__$")
_IMPLICIT = re.compile(r"__(?!del__)\w+__$|<")  # what a line calls without its name
_IN_HANDLER = "take no lock in the handler of a signal: set a flag there, and let the program look at it"
_TELLS_LITTLE = (kinds.QUEUE, kinds.LOOP, kinds.IDLE, kinds.LOCK, kinds.OTHER)


def blame(kind: str, members: Sequence[Process], view: Optional[View]) -> Explanation:
    """Blame `members`, with what the first of them does."""
    wait = waits.of(members[0])
    lock = _lock(members[0])
    if lock is not None:
        return replace(lock, named=tuple(members))
    wait, more, place = _within(members[0], wait, view)
    group = Cohort(wait, tuple(members))
    busy = view is not None and all(moved(process, view) for process in members)
    _, fix, blocked = phrase(wait)
    moves = busy and wait.kind not in (kinds.STOPPED, kinds.BUSY)
    now = "" if wait.kind == kinds.OTHER else f", and now {does(group)}"
    doing = f"moves: it is late, or works without end{now}" if moves else does(group)
    one = wait.op and wait.kind in kinds.AT_ONE and len({waits.of(member).op for member in members}) == 1
    on = f" on {wait.op}" if one and (wait.kind, wait.op) not in SPECIAL else ""
    what = f"{group.names} {doing}{on}{where(group)}{more}{_at_end(members[0])}"
    why = "" if wait.sure else _unsure(members[0], wait)
    told = wait.kind if wait.kind != kinds.OTHER else kind
    mine = Explanation(told, what, why, fix, blocked, not wait.sure, tuple(members), place)
    if view is None or moves:
        return mine
    deeper = behind(members[0], view)
    if deeper is not None:
        theirs = blame(kind, [deeper], replace(view, first=(), second=()))
        at_fault = place if wait.op == kinds.HANDSHAKE else theirs.frame  # anybody may have connected
        what = f"{what}; behind it {theirs.what}"
        return replace(theirs, what=what, named=tuple(members), frame=at_fault)
    return replace(mine, what=f"{what}{_far(members, view) or _behind_thread(members[0], wait, view)}")


def _unsure(process: Process, wait: Wait) -> str:
    if wait.thread is None or wait.thread is waits.working(process):
        if wait.place is not None and wait.place.text:
            return "inferred from its stack and the line at which it stands"
        return "inferred from its stack: no frame says what it waits for"
    one = "coroutine" if wait.thread.is_task else "thread"
    return f"inferred: that this {one} is the one that it waits for is not shown"


def _far(members: Sequence[Process], view: View) -> str:
    """Who is at the other end of what the first of them waits at."""
    process = members[0]
    far = other_end(process, view)
    if far is process:
        locked = waits.of(process).kind == kinds.FILE_LOCK
        return "; the process itself holds it" if locked else "; the other end is the process itself"
    if far is not None:
        theirs = waits.of(far)
        if waits.of(process).kind in (kinds.NETWORK, kinds.LOOP):
            theirs = waits.answering(far, theirs.thread) or _within(far, theirs, None)[0]
        there = Cohort(theirs, (far,))
        mine = waits.of(process)
        who = _FAR.get(mine.op) or _FAR.get(mine.kind, "the other end is")
        if mine.kind == kinds.FILE_LOCK and (files := far.facts.get("locked")):
            who = f"`{files[0].rsplit('/', 1)[-1]}` is locked by"
        if copied(process):
            who = "the other end is open in"
        told = f"; {who} {far.name}, which {does(there)}{where(there)}"
        beyond = other_end(far, view)
        if beyond is process and copied(process):
            return (
                f"{told}; that is another pipe: a fork may have left it this end, and who served it is gone"
            )
        if beyond is process:
            return ": each waits for the other" if far in members else f"{told}: each waits for the other"
        return f"{told}{_next(theirs, beyond)}" if beyond not in (None, far) else told
    if waits.of(process).op == kinds.BATON and not builders(process, view.last):
        return "; no process that was seen has such a file open"
    wait = waits.of(process)
    if (wait.kind, wait.op) == (kinds.LOCK, kinds.PROXY):
        through = [pid for pid, *_ in held_by(process) or ()]
        manager = f", and pid {through[0]} is the manager through which it waits" if len(through) == 1 else ""
        return f"; no process that was seen is shown to hold it{manager}"
    streams = wait.kind == kinds.LOOP and (
        _only_programs(process) or any(one.kind == kinds.CHILD for one in waits.coroutines(process))
    )
    rows = held_by(process) if streams or wait.kind in ON_HOLDERS else None
    if rows is None:
        return ""
    if not rows:
        return "; no other process of the run has the other end"
    if wait.kind == kinds.FILE_LOCK and len(rows) > 1:
        return f"; the locked file is open in {_holders(rows, process, view, 'and')}"
    if copied(process):
        return f"; the other end is open in {_holders(rows, process, view, 'and')}"
    return f"; it waits for {_holders(rows, process, view)}"


def _next(wait: Wait, far: Process) -> str:
    """Who is at the other end of that."""
    lead = "that lock is held by" if wait.kind == kinds.FILE_LOCK else "the other end of that is"
    there = waits.of(far)
    return f"; {lead} {far.name}, which {does(Cohort(there, (far,)))}{at(there)}"


def _behind_thread(process: Process, wait: Wait, view: View) -> str:
    """For whom the thread waits that the process waits for."""
    thread = wait.thread if wait.kind != kinds.STOPPED else None
    rows = process.facts.get("behind", {}).get(str(thread.number)) if thread else None
    return f"; it waits for {_holders(rows, process, view)}" if rows else ""


def _holders(rows: Sequence[Sequence[Any]], process: Process, view: View, link: str = "or") -> str:
    """Those that could end a wait, and for whom they wait themselves: one of them, or (`and`) all."""
    ranked = {one.pid: f"rank {one.rank}, " for one in view.last if one.node == process.node and one.rank}
    said = []
    for pid, command, call, *further in rows[:SHOWN]:
        program = " ".join(str(command).split())
        one = f"{ranked.get(pid, '')}pid {pid} (`{program}`{f', {call}' if call else ''})"
        more = f", which waits for {_holders(further[0], process, view)}" if further else ""
        said.append("that process itself" if pid == process.pid else one + more)
    few = len(said) == 1 or link == "and"
    return f" {link} ".join(said) if few else f"one of {', '.join(said)}"


def _within(process: Process, wait: Wait, view: Optional[View]) -> Tuple[Wait, str, Optional[Frame]]:
    """Where it waits for other threads or coroutines: what these do, as a wait or in words, and the place."""
    if wait.kind == kinds.LOOP and not (wait.thread and wait.thread.is_task):
        return _in_loop(process, wait)
    own = wait.kind == kinds.NETWORK and view is not None and other_end(process, view) is process
    inner = own or wait.on_thread
    if not inner and (wait.kind not in (kinds.QUEUE, kinds.LOCK) or wait.op == kinds.DRAIN):
        return wait, "", wait.place
    others = _other_threads(process, wait)
    feeding = [one for one in others if wait.op == kinds.RESULTS and one.thread and _feeds(one.thread)]
    if feeding:
        return wait, f"; its tasks come from {_and_threads(process, feeding, ', which')}", wait.place
    if wait.kind == kinds.LOCK and (same := _at_same(process, wait)):
        return wait, f"; {_and_threads(process, same)}", wait.place
    if wait.kind == kinds.FUTURE and not others:  # of coroutines of a loop in another thread
        others = waits.coroutines(process)
    told = [one for one in others if one.kind not in _TELLS_LITTLE and (inner or not texts.naps(one.place))]
    if len(told) == 1:
        # Nothing shows that another thread is the one that should set an event or fill a queue.
        here, rest = (replace(told[0], sure=False), wait) if inner else (wait, told[0])
        label = rest.thread.label if rest.thread else "it"
        return here, f" ({label} {does(Cohort(rest, (process,)))}{at(rest)})", here.place
    if inner and len(others) == 1 and others[0].thread:
        there = Cohort(others[0], (process,))
        more = f"; {others[0].thread.label} {does(there)}{at(others[0])}"
        # One that waits for work is told to end by whoever joins it; the place of any other is the cause.
        rests = others[0].kind in (kinds.QUEUE, kinds.LOOP, kinds.IDLE) and others[0].op != kinds.FULL
        idle = wait.kind == kinds.JOIN and rests
        return wait, more, wait.place if idle else others[0].place
    if inner and others and not told:
        return wait, f"; {_and_threads(process, others)}", wait.place
    return wait, "", wait.place


def _at_same(process: Process, wait: Wait) -> List[Wait]:
    """The other threads that wait at the same lock or condition, by the lines of the program."""
    name = texts.awaited(wait.place.text) if wait.place else ""
    found: Dict[Tuple[str, ...], Wait] = {}
    for thread in process.threads if name and wait.place else ():
        other = waits.of_thread(process, thread)
        if thread is wait.thread or other.kind != kinds.LOCK or other.place is None or wait.place is None:
            continue
        if texts.awaited(other.place.text) == name and _same_scope(name, other.place, wait.place):
            found.setdefault((*other.key, called(other)), other)
    return list(found.values())


def _feeds(thread: Thread) -> bool:
    """Whether it is the thread of a pool that takes the tasks from an iterator of the program."""
    return any(frame.function.endswith("_handle_tasks") for frame in thread.frames)


def _at_end(process: Process) -> str:
    """Whether the program is over but for its threads, in words."""
    frames = process.main.frames if process.main else ()
    ends = any(frame.function in ("_shutdown", "_python_exit") for frame in frames)
    over = ends and process.main is not None and waits.own_frame(process.main) is None
    return "; its main thread has come to its end, and waits for its threads" * over


def _and_threads(process: Process, others: Sequence[Wait], link: str = "") -> str:
    """What further threads of it do, in words."""
    return "; ".join(
        f"{one.thread.label}{link} {does(Cohort(one, (process,)))}{at(one)}"
        for one in others[:MOST_THREADS]
        if one.thread
    )


def _in_loop(process: Process, wait: Wait) -> Tuple[Wait, str, Optional[Frame]]:
    """The same of an event loop."""
    piped = {kinds.NETWORK: kinds.PIPE} if _only_programs(process) else {}
    waiting = [replace(one, kind=piped.get(one.kind, one.kind)) for one in waits.coroutines(process)]
    if found := _holding(process, waiting):
        holder, wanted = found
        name = texts.wanted_lock(wanted.text)
        more = f"; by its lines it holds `{name}`, for which other coroutines wait at {wanted}"
        return replace(holder, kind=piped.get(holder.kind, holder.kind), sure=False), more, holder.place
    if all(one.kind == kinds.LOOP for one in waiting):  # maybe for a thread of an executor
        pool = [one for one in _other_threads(process, wait) if one.thread and waits.is_pooled(one.thread)]
        if len(pool) == 1:
            return replace(pool[0], sure=False), "", pool[0].place
    # It may hold the lock that the others wait for; and those at a queue may only have nothing to do.
    for op, at_what in ((kinds.TURN, "for a lock"), (kinds.INNER, "at a queue")):
        outer = [one for one in waiting if one.op != op]
        if len(outer) == 1 < len(waiting):
            rest = next(one for one in waiting if one.op == op)
            more = f"; other coroutines wait {at_what} at {rest.place}"
            return replace(outer[0], sure=False), more, outer[0].place
    if len(waiting) == 1:
        return waiting[0], "", waiting[0].place
    ops = {one.op for one in waiting}
    wait = replace(wait, op=ops.pop()) if len(ops) == 1 and ops <= {kinds.TURN, kinds.SIGNAL} else wait
    places = ", ".join(f"{one.place}" for one in waiting[:SHOWN])
    return wait, f"; its coroutines wait at {places}" if places else "", wait.place


def _holding(process: Process, waiting: Sequence[Wait]) -> Optional[Tuple[Wait, Frame]]:
    """The coroutine that holds what others wait for, and waits for no lock itself; with their place."""
    for one in waiting:
        name = texts.wanted_lock(one.place.text) if one.op == kinds.TURN and one.place else ""
        for task in process.threads if name and one.place else ():
            if task.is_task and one.place and _holds(task, name, one.place):
                told = waits.of_thread(process, task)
                if told.op != kinds.TURN:
                    return told, one.place
    return None


def _only_programs(process: Process) -> bool:
    """Whether its streams can only be those of programs that it has started."""
    far = [row for row in process.facts.get("sockets", ()) if row[1]]
    return not far and bool(held_by(process))


def _other_threads(process: Process, wait: Wait) -> List[Wait]:
    """What the other threads of the program do, one of each place; for a future those of its pool alone."""
    found = {
        told.key: told
        for thread in process.threads
        if thread is not wait.thread and not thread.is_task and waits.own_frame(thread) is not None
        for told in [waits.of_thread(process, thread)]
    }
    pool = [one for one in found.values() if one.thread and waits.is_pooled(one.thread)]
    return pool if pool and wait.kind == kinds.FUTURE else list(found.values())


def _lock(process: Process) -> Optional[Explanation]:
    """Threads that wait for locks which others of them hold, by the lines of the program."""
    wanted = {id(thread): name for thread in process.threads if (name := _wants(thread))}
    if not wanted:
        return _further_in(process)
    threads = [thread for thread in process.threads if id(thread) in wanted]
    for thread in threads:
        name = wanted[id(thread)]
        mine = waits.own_frame(thread)
        others = sorted(process.threads, key=lambda other: other is thread)  # itself last
        owner = next((other for other in others if mine and _holds(other, name, mine)), None)
        if owner is None:
            continue
        other = waits.own_frame(owner)
        base = f"in {process.name} {thread.label} waits for `{name}` at {mine}{_called(thread, mine)}"
        fix = DOES[kinds.LOCK][1]
        inferred = "inferred from the lines of the program: names of locks, not the locks themselves"
        if owner is thread:
            taken = next(at for at, frame in enumerate(thread.frames) if name in frame.held)
            on_top = _on_top(thread.frames, taken)
            what = f"{base}, and holds it itself at {thread.frames[taken]}{on_top}"
            fix = _IN_HANDLER if on_top else fix
        elif id(owner) in wanted and other and _holds(thread, wanted[id(owner)], other):
            wants = f"`{wanted[id(owner)]}` at {other}{_called(owner, other)}"
            what = f"{base}, which {owner.label} holds; that one waits for {wants}"
        else:
            loop = "; it cannot go on, since that thread runs its event loop" * owner.is_task
            what = f"{base}, which {owner.label} holds at {other}{loop}"
        frame = mine if owner is thread or id(owner) in wanted else other
        return Explanation("lock", what, inferred, fix, False, True, (process,), frame)
    return _further_in(process)


def _called(thread: Thread, place: Optional[Frame]) -> str:
    return called(Wait(kinds.LOCK, place, thread))


def _on_top(frames: Sequence[Frame], taken: int) -> str:
    """What runs on top of a line that does not call it, inside of the frame that took the lock."""
    for number in range(taken):
        inner, outer = frames[number], frames[number + 1]
        name = inner.function.rsplit(".", 1)[-1]
        called = _IMPLICIT.match(name) or re.search(rf"\b{re.escape(name)}\b", outer.text)
        if outer.text and not called:
            return (
                f"; `{inner.function}` is not called by `{outer.text}`: it runs on top of it, as the handler"
                " of a signal (or a destructor, a callback) does"
            )
    return ""


def _further_in(process: Process) -> Optional[Explanation]:
    """The working thread waits for a lock in a function in which another thread is further: as in `logging`,
    or behind a `with` of the program whose lock has no name."""
    thread = waits.working(process)
    wait = waits.of(process)
    if thread is None or wait.kind != kinds.LOCK or wait.op == kinds.SIGNAL or wait.thread is not thread:
        return None
    here = next((frame for frame in thread.frames if not _ACQUIRES.search(frame.function)), None)
    inside = [
        told for other in process.threads
        if other is not thread and here is not None and _beyond(other, here)
        for told in [waits.of_thread(process, other)]
        if told.place is not None
    ]  # fmt: skip
    if len(inside) != 1 or not inside[0].thread or here is None:
        return None
    there = inside[0]
    what = (
        f"in {process.name} {thread.label} waits for a lock{at(wait)}; {inside[0].thread.label}, which is"
        f" further in `{here.function}` and so may hold it, {does(Cohort(there, (process,)))}{at(there)}"
    )
    why = "inferred from the stacks: both are in one function, the other behind the line at which it is taken"
    return Explanation("lock", what, why, DOES[kinds.LOCK][1], False, True, (process,), there.place)


def _beyond(thread: Thread, here: Frame) -> bool:
    """Whether the thread has come further in the function, and is in a call from there."""
    return any(
        (frame.file, frame.function) == (here.file, here.function) and frame.line > here.line
        for frame in thread.frames[1:]
    )


def _wants(thread: Thread) -> str:
    """The lock that the thread waits for, by the line at which it stands."""
    frame = next((one for one in thread.frames if not _ENTERS.search(f"{one.file}:{one.function}")), None)
    if frame is None or thread.busy or is_library(frame):
        return ""
    return texts.wanted_lock(frame.text)


def _holds(thread: Thread, name: str, there: Frame) -> bool:
    """Whether a frame of the thread holds the lock that is wanted in that other frame, as far as names tell:
    those of one file, and of one class where they are an object's own. Who waits on a condition has let it
    go."""
    inner = waits.own_frame(thread)
    if inner is None or re.search(rf"(?<![\w.]){re.escape(name)}\.wait(?:_for)?\(", inner.text):
        return False
    return any(name in frame.held and _same_scope(name, frame, there) for frame in thread.frames)


def _same_scope(name: str, one: Frame, other: Frame) -> bool:
    if one.file != other.file:
        return False
    classes = [frame.function.rpartition(".<locals>")[0] or frame.function for frame in (one, other)]
    owners = [text.rpartition(".")[0] for text in classes]
    return not name.startswith("self.") or "" in owners or owners[0] == owners[1]
