"""Threads of one process that wait for each other's locks, by the lines of the program."""

from __future__ import annotations

import re
from typing import Dict, Optional, Sequence

from jobspec.runtime.stalls import kinds, texts, waits
from jobspec.runtime.stalls.cohorts import Cohort, at, called, does
from jobspec.runtime.stalls.explanation import Explanation
from jobspec.runtime.stalls.libraries import is_library
from jobspec.runtime.stalls.phrases import DOES
from jobspec.runtime.stalls.stacks import Frame, Process, Thread
from jobspec.runtime.stalls.waits import Wait

MOST = 3  # further threads in a sentence
_ACQUIRES = re.compile(r"(?:^|\.)_?(?:acquire\w*|__enter__)$")
_ENTERS = re.compile(r"(?:^|/)threading\.py:(?:Condition\.)?__enter__$")
_IMPLICIT = re.compile(r"__(?!del__)\w+__$|<")  # what a line calls without its name
_IN_CALLBACK = (
    "see whether a callback or a handler of a signal takes the lock while it is held: set a flag there, or"
    " call it after the release"
)
_IN_DESTRUCTOR = "drop the last reference after the release, or let the destructor not take the lock"
_TWICE = "see whether the outer call can release it before, or whether it may be an `RLock`"
_BOTH = "take both in the same order everywhere, or one after the release of the other"
_KEPT = "see whether it is held there for long: wait, or do slow work, after the release"


def lock(process: Process) -> Optional[Explanation]:
    """Threads that wait for locks which others of them hold, by the lines of the program."""
    wanted = {id(thread): name for thread in process.threads if (name := _wants(thread))}
    if not wanted:
        return _further_in(process)
    threads = [thread for thread in process.threads if id(thread) in wanted]
    for thread in threads:
        name = wanted[id(thread)]
        mine = waits.own_frame(thread)
        others = sorted(process.threads, key=lambda other: other is thread)  # itself last
        owner = next((other for other in others if mine and holds(other, name, mine)), None)
        if owner is None:
            continue
        other = waits.own_frame(owner)
        base = f"in {process.name} {thread.label} waits for `{name}` at {mine}{_called(thread, mine)}"
        one_of_it = f"by its lines {owner.label} holds one of that name"
        base += _also(process, wanted, name, thread, owner)
        fix = _KEPT
        inferred = "inferred from the lines of the program: names of locks, not the locks themselves"
        if owner is thread:
            taken = next(at for at, frame in enumerate(thread.frames) if name in frame.held)
            on_top = _on_top(thread.frames, taken)
            what = f"{base}; by its lines it holds one of that name itself, at {thread.frames[taken]}{on_top}"
            fix = _TWICE if not on_top else _IN_DESTRUCTOR if "destructor" in on_top[-12:] else _IN_CALLBACK
        elif id(owner) in wanted and other and holds(thread, wanted[id(owner)], other):
            wants = f"`{wanted[id(owner)]}` at {other}{_called(owner, other)}"
            what = f"{base}; {one_of_it}, and waits for {wants}: {thread.label} holds one of that name"
            fix = _BOTH
        else:
            loop = owner.is_task and waits.runs_loop(thread)
            stuck = "; it cannot go on, since that thread runs the event loop" * loop
            what = f"{base}; {one_of_it} at {other}{_where(process, owner)}{stuck}"
        frame = mine if owner is thread or id(owner) in wanted else other
        return Explanation("lock", what, inferred, fix, False, True, (process,), frame)
    return _further_in(process)


def _where(process: Process, owner: Thread) -> str:
    """What the one that holds the lock does at its line."""
    told = waits.of_thread(process, owner)
    return "" if owner.is_task or told.kind == kinds.OTHER else f", where it {does(Cohort(told, (process,)))}"


def _called(thread: Thread, place: Optional[Frame]) -> str:
    return called(Wait(kinds.LOCK, place, thread))


def _also(process: Process, wanted: Dict[int, str], name: str, *but: Thread) -> str:
    """The further threads that wait for a lock of that name, in words."""
    more = [one.label for one in process.threads if wanted.get(id(one)) == name and one not in but]
    shown = f"{', '.join(more[:MOST])}{' and others' if len(more) > MOST else ''}"
    return f"; for one of that name {shown} wait{'s' if len(more) == 1 else ''}, too" if more else ""


def _on_top(frames: Sequence[Frame], taken: int) -> str:
    """What runs on top of a line that does not call it, inside of the frame that took the lock."""
    for number in range(taken):
        inner, outer = frames[number], frames[number + 1]
        name = inner.function.rsplit(".", 1)[-1]
        called = _IMPLICIT.match(name) or re.search(rf"\b{re.escape(name)}\b", outer.text)
        if outer.text and not called:
            unnamed = f"; the line `{outer.text}` does not name `{inner.function}`: that"
            if name == "__del__":
                return f"{unnamed} is a destructor"
            return f"{unnamed} may be a callback, the handler of a signal or a wrapped function"
    return ""


def _further_in(process: Process) -> Optional[Explanation]:
    """The working thread waits for a lock in a function in which another thread is further: as in `logging`,
    or behind a `with` of the program whose lock has no name."""
    thread = waits.working(process)
    wait = waits.of(process)
    others = wait.kind != kinds.LOCK or wait.op in kinds.NO_LOCK
    if thread is None or others or wait.thread is not thread:
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
        f"in {process.name} {thread.label} waits for a lock or a semaphore{at(wait)};"
        f" {inside[0].thread.label}, which is further in `{here.function}` and so may hold it,"
        f" {does(Cohort(there, (process,)))}{at(there)}"
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


def holds(thread: Thread, name: str, there: Frame) -> bool:
    """Whether a frame of the thread holds the lock that is wanted in that other frame, as far as names tell:
    those of one file, and of one class where they are an object's own. Who waits on a condition has let it
    go."""
    inner = waits.own_frame(thread)
    if inner is None or texts.lets_go(name, inner.text):
        return False
    return any(name in frame.held and same_scope(name, frame, there) for frame in thread.frames)


def same_scope(name: str, one: Frame, other: Frame) -> bool:
    if one.file != other.file:
        return False
    classes = [frame.function.rpartition(".<locals>")[0] or frame.function for frame in (one, other)]
    owners = [text.rpartition(".")[0] for text in classes]
    return not name.startswith("self.") or "" in owners or owners[0] == owners[1]
