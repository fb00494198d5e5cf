"""For which of its own threads or coroutines a process waits, in words."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Dict, List, Optional, Sequence, Tuple

from jobspec.runtime.stalls import kinds, texts, waits
from jobspec.runtime.stalls.chains import held_by, other_end
from jobspec.runtime.stalls.cohorts import SHOWN, Cohort, View, at, called, does
from jobspec.runtime.stalls.locks import holds, same_scope
from jobspec.runtime.stalls.phrases import OPEN
from jobspec.runtime.stalls.stacks import Frame, Process, Thread
from jobspec.runtime.stalls.waits import Wait

_PREDICATE = (
    "see whether what it waits for (`wait_for`) can come true at all, and who should make it so and notify:"
    f" {OPEN}?"
)
MOST_THREADS = 3  # in a sentence
_TELLS_LITTLE = (kinds.QUEUE, kinds.LOOP, kinds.IDLE, kinds.LOCK, kinds.OTHER)


def within(process: Process, wait: Wait, view: Optional[View]) -> Tuple[Wait, str, Optional[Frame]]:
    """Where it waits for other threads or coroutines: what these do, as a wait or in words, and the place."""
    if wait.kind == kinds.LOOP:
        return _in_loop(process, wait)
    far = other_end(process, view) if wait.kind == kinds.NETWORK and view is not None else None
    own = far is not None and far.to is process
    inner = own or wait.on_thread
    own_pool = wait.op == kinds.RESULTS
    if not (inner or own_pool) and (wait.kind not in (kinds.QUEUE, kinds.LOCK) or wait.op == kinds.DRAIN):
        return wait, "", wait.place
    others = other_threads(process, wait)
    if name := texts.joined(wait.place) if wait.kind == kinds.JOIN else "":
        called_so = [one for one in others if one.thread and name in one.thread.name.lower()]
        others = called_so if len(called_so) == 1 else others
    if own_pool and (found := _of_pool(process, wait)):
        return wait, found[0], wait.place
    if wait.kind == kinds.LOCK and (same := _at_same(process, wait)):
        same += [one for one in others if one.key not in {way.key for way in same}]
        return wait, f"; {and_threads(process, same)}", wait.place
    if wait.kind == kinds.FUTURE and not others:  # of coroutines of a loop in another thread
        others = waits.coroutines(process)
    told = [one for one in others if one.kind not in _TELLS_LITTLE and (inner or not texts.naps(one.place))]
    if len(told) == 1:
        # Nothing shows that another thread is the one that should set an event or fill a queue.
        here, rest = (replace(told[0], sure=False), wait) if inner else (wait, told[0])
        label = rest.thread.label if rest.thread else "it"
        many = alike(process, here) if inner else []
        of = f" in {len(many)} of its {many[0].noun}s" if len(many) > 1 else ""
        of = f" in its {many[0].label}" if len(many) == 1 else of
        also = _besides(process, told[0], wait)
        return here, f"{of} ({label} {does(Cohort(rest, (process,)))}{at(rest)}){also}", here.place
    if inner and len(others) == 1 and others[0].thread:
        there = Cohort(others[0], (process,))
        more = f"; {others[0].thread.label} {does(there)}{at(others[0])}"
        # One that waits for work is told to end by whoever joins it; the place of any other is the cause.
        rests = others[0].kind in (kinds.QUEUE, kinds.LOOP, kinds.IDLE) and others[0].op != kinds.FULL
        native = (others[0].kind, others[0].op) == (kinds.LOCK, kinds.NATIVE)  # as a queue in C
        idle = (wait.kind == kinds.JOIN and rests) or (wait.kind == kinds.FUTURE and native)
        return wait, more, wait.place if idle else others[0].place
    if others and (inner or not own_pool):
        return wait, f"; {and_threads(process, others)}", wait.place
    return wait, "", wait.place


def _besides(process: Process, *told: Wait) -> str:
    """What the threads do that are not told yet."""
    known = {one.key for one in told}
    rest = [one for one in _each_thread(process, told[-1]) if one.key not in known]
    return f"; {and_threads(process, rest)}" if rest else ""


def alike(process: Process, wait: Wait) -> List[Thread]:
    """The threads, or of a coroutine the coroutines, that stand in the same wait at the same place."""
    if wait.place is None or wait.thread is None:
        return []
    same = [one for one in process.threads if one.is_task == wait.thread.is_task]
    return [one for one in same if waits.of_thread(process, one).key == wait.key]


def advice(process: Process, wait: Wait) -> str:
    """What fits better than the words for every such wait; mostly nothing."""
    if wait.op == kinds.SIGNAL and wait.place is not None and ".wait_for(" in wait.place.text:
        return _PREDICATE
    found = _of_pool(process, wait) if wait.op == kinds.RESULTS and wait.kind != kinds.IDLE else None
    return found[1] if found else ""


def _of_pool(process: Process, wait: Wait) -> Optional[Tuple[str, str]]:
    """What the threads of the pool show for which it waits, and advice. Of two pools nothing tells whose
    they are."""
    if works := [one for one in other_threads(process, wait) if one.thread and _is_worker(one.thread)]:
        return f"; {and_threads(process, works)}", "see what the pool's threads wait for at these lines"
    if taking := _taking(process):
        said = f"; its results are taken by {and_threads(process, taking, ', which')}"
        return said, "let a callback not wait for its own pool: it runs in the thread that takes the results"
    if wait.kind == kinds.QUEUE and _lost_results(process):
        said = "; the pool's thread that takes them (`_handle_results`) has ended"
        return (
            said,
            "see whether the log has an error of that thread, as of a result that cannot be unpickled",
        )
    feeding = _of_pools(process, "_handle_tasks")
    if len(feeding) != 1 or waits.own_frame(feeding[0]) is None:
        return None
    source = [waits.of_thread(process, feeding[0])]
    said = f"; its tasks come from {and_threads(process, source, ', which')}"
    return said, "see what the iterator of its tasks waits for at that line"


def _is_worker(thread: Thread) -> bool:
    """Whether it works for a `ThreadPool`, whose workers are threads."""
    return any(
        re.search(r"multiprocessing/pool\.py:worker$", f"{one.file}:{one.function}") for one in thread.frames
    )


def _of_pools(process: Process, function: str) -> List[Thread]:
    """The threads that pools run for themselves."""
    return [
        one for one in process.threads
        if function in one.name or any(frame.function.endswith(function) for frame in one.frames)
    ]  # fmt: skip


def _at_same(process: Process, wait: Wait) -> List[Wait]:
    """The other threads that wait at the same lock or condition, by the lines of the program."""
    name = texts.awaited(wait.place.text) if wait.place else ""
    found: Dict[Tuple[str, ...], Wait] = {}
    for thread in process.threads if name and wait.place else ():
        other = waits.of_thread(process, thread)
        if thread is wait.thread or other.kind != kinds.LOCK or other.place is None or wait.place is None:
            continue
        if texts.awaited(other.place.text) == name and same_scope(name, other.place, wait.place):
            found.setdefault((*other.key, called(other)), other)
    return list(found.values())


def _taking(process: Process) -> List[Wait]:
    """The thread that takes the results of a pool, where it stands in a callback."""
    found = [waits.of_thread(process, thread) for thread in _of_pools(process, "_handle_results")]
    busy = (kinds.PIPE, kinds.OTHER, kinds.BUSY)
    return [one for one in found if one.place is not None and one.kind not in busy and len(found) == 1]


def _lost_results(process: Process) -> bool:
    """Whether a pool of it has no thread left that takes results, though the two others are there: an error
    ends that one alone, as of an exception that cannot be unpickled."""
    names = ("_handle_results", "_handle_tasks", "_handle_workers")
    return [len(_of_pools(process, name)) for name in names] == [0, 1, 1]


def and_threads(process: Process, others: Sequence[Wait], link: str = "") -> str:
    """What further threads of it do, in words."""
    return "; ".join(
        f"{one.thread.label}{link} {does(Cohort(one, (process,)))}{at(one)}"
        for one in others[:MOST_THREADS]
        if one.thread
    )


def _in_loop(process: Process, wait: Wait) -> Tuple[Wait, str, Optional[Frame]]:
    """The same of an event loop."""
    piped = only_programs(process)
    waiting = [
        replace(one, kind=kinds.PIPE) if piped and one.op == kinds.STREAM else one
        for one in waits.coroutines(process)
    ]
    if found := _holding(process, waiting):
        holder, wanted = found
        name = texts.wanted_lock(wanted.text)
        turns = [one for one in waiting if one.op == kinds.TURN and one.place == wanted]
        who = _further(process, turns[0])
        more = f"; by its lines it holds `{name}`, and {who} for one of that name at {wanted}"
        holder = replace(holder, kind=kinds.PIPE) if piped and holder.op == kinds.STREAM else holder
        return replace(holder, sure=False), more, holder.place
    if all(one.kind == kinds.LOOP for one in waiting):  # maybe for a thread of an executor
        pool = [one for one in other_threads(process, wait) if one.thread and waits.is_pooled(one.thread)]
        if len(pool) == 1:
            return replace(pool[0], sure=False), "", pool[0].place
    # It may hold the lock that the others wait for; and those at a queue may only have nothing to do.
    for op, at_what in ((kinds.TURN, "for a lock or a semaphore"), (kinds.INNER, "at a queue")):
        outer = [one for one in waiting if one.op != op]
        main = [one for one in waiting if op == kinds.INNER and _is_run(one, wait)]
        if main and main[0].op == op:  # for which the process waits
            beside = f"; {and_threads(process, outer)}" if outer else ""
            return main[0], beside, main[0].place
        if len(outer) == 1 < len(waiting):
            rest = next(one for one in waiting if one.op == op)
            more = f"; {_further(process, rest)} {at_what} at {rest.place}"
            return replace(outer[0], sure=False), more, outer[0].place
    if len(waiting) == 1:
        return waiting[0], "", waiting[0].place
    ops = {one.op for one in waiting}
    wait = replace(wait, op=ops.pop()) if len(ops) == 1 and ops <= {kinds.TURN, kinds.SIGNAL} else wait
    places = ", ".join(f"{one.place}" for one in waiting[:SHOWN])
    return wait, f"; its coroutines wait at {places}" if places else "", wait.place


def _is_run(task: Wait, wait: Wait) -> bool:
    """Whether the line of the process runs the loop for that coroutine, as `asyncio.run(main())` does."""
    outer = task.thread.frames[-1].function.rsplit(".", 1)[-1] if task.thread else ""
    return (
        wait.place is not None
        and re.search(rf"\brun\w*\((?:\w+\.)*{re.escape(outer)}\(", wait.place.text) is not None
    )


def _further(process: Process, wait: Wait) -> str:
    """That one coroutine or more wait so."""
    return "another coroutine waits" if len(alike(process, wait)) == 1 else "other coroutines wait"


def _holding(process: Process, waiting: Sequence[Wait]) -> Optional[Tuple[Wait, Frame]]:
    """The coroutine that holds what others wait for, and waits for no lock itself; with their place."""
    for one in waiting:
        name = texts.wanted_lock(one.place.text) if one.op == kinds.TURN and one.place else ""
        for task in process.threads if name and one.place else ():
            if task.is_task and one.place and holds(task, name, one.place):
                told = waits.of_thread(process, task)
                if told.op != kinds.TURN:
                    return told, one.place
    return None


def only_programs(process: Process) -> bool:
    """Whether its streams can only be those of programs that it has started."""
    far = [row for row in process.facts.get("sockets", ()) if row[1]]
    return not far and bool(held_by(process))


def other_threads(process: Process, wait: Wait) -> List[Wait]:
    """What the other threads of the program do, one of each place; for a future those of its pool alone."""
    found = _each_thread(process, wait)
    pool = [one for one in found if one.thread and waits.is_pooled(one.thread)]
    return pool if pool and wait.kind == kinds.FUTURE else found


def _each_thread(process: Process, wait: Wait) -> List[Wait]:
    """What each thread of the program does but the one that waits, one of each place."""
    found = {
        told.key: told
        for thread in process.threads
        if thread is not wait.thread and not thread.is_task and waits.own_frame(thread) is not None
        for told in [waits.of_thread(process, thread)]
    }
    return list(found.values())
