"""What one process does, or several that do the same: the explanation that blames them."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional, Sequence, Tuple

from jobspec.runtime.stalls import far_ends, inner, kinds, locks, texts, waits
from jobspec.runtime.stalls.chains import behind
from jobspec.runtime.stalls.cohorts import Cohort, View, at, does, elsewhere, moved, running, where
from jobspec.runtime.stalls.explanation import Explanation
from jobspec.runtime.stalls.phrases import SPECIAL, phrase
from jobspec.runtime.stalls.stacks import Frame, Process, Thread
from jobspec.runtime.stalls.waits import Wait


def blame(kind: str, members: Sequence[Process], view: Optional[View]) -> Explanation:
    """Blame `members`, with what the first of them does."""
    wait = waits.of(members[0])
    found = locks.lock(members[0])
    if found is not None:
        return replace(found, named=tuple(members))
    wait, more, place = _of_all(members, view)
    group = Cohort(wait, tuple(members))
    _, fix, blocked = phrase(wait)
    fix = inner.advice(members[0], wait) or fix
    moves = _move(members, wait, view)
    now = "" if wait.kind == kinds.OTHER else f", and now {does(group)}"
    doing = f"{_moves(members, view)} between the two samples{now}" if view and moves else does(group)
    one = (
        wait.op not in ("", "pipe")
        and wait.kind in kinds.AT_ONE
        and len({waits.of(member).op for member in members}) == 1
    )
    on = f" on {wait.op}" if one and (wait.kind, wait.op) not in SPECIAL else ""
    used = "" if view is None or moves or wait.kind == kinds.BUSY else _used(members, view)
    what = f"{group.names} {doing}{on}{where(group)}{more}{_in_loop(members)}{_at_end(members)}{used}"
    why = "" if wait.sure else _unsure(members[0], wait)
    told = kinds.PIPE if _selects_program(wait) else wait.kind if wait.kind != kinds.OTHER else kind
    mine = Explanation(told, what, why, fix, blocked, not wait.sure, tuple(members), place)
    if view is None or moves:
        return mine
    deeper = behind(members[0], view)
    if deeper is None:
        further = far_ends.far(members, view) or far_ends.behind_thread(members[0], wait, view)
        return replace(mine, what=f"{what}{further}")
    theirs = blame(kind, [deeper.to], replace(view, first=(), second=()))
    at_fault = place if wait.op == kinds.HANDSHAKE else theirs.frame  # anybody may have connected
    ends = [behind(member, view) for member in members[1:]]
    same = all(end is not None and end.to is deeper.to for end in ends)
    whom = "it" if same else f"{members[0].name},"
    link = f"behind {whom}" if deeper.shown else f"behind {whom.rstrip(',')}, it seems,"
    why = why if deeper.shown else why or "inferred: that it waits for that process is not shown"
    whys = "; ".join(part for part in dict.fromkeys((why, theirs.why)) if part)
    return replace(
        theirs, what=f"{what}; {link} {theirs.what}", why=whys, inferred=theirs.inferred or bool(why),
        named=tuple(members), frame=at_fault,
    )  # fmt: skip


def _selects_program(wait: Wait) -> bool:
    """Whether its line selects over the streams of a program, which are pipes."""
    at_select = wait.kind == kinds.OTHER and wait.op == kinds.SELECT
    return at_select and wait.place is not None and texts.STANDARD.search(wait.place.text) is not None


def _of_all(members: Sequence[Process], view: Optional[View]) -> Tuple[Wait, str, Optional[Frame]]:
    """What the members wait for within themselves, in words, and the place; each by itself where they differ
    in that."""
    told = [inner.within(one, waits.of(one), view) for one in members]
    wait, more, place = told[0]
    if all((other.key, others) == (wait.key, more) for other, others, _ in told):
        return told[0]
    differ = any(other.key != wait.key for other, _, _ in told)
    said = []
    for one, (own, others, _) in zip(members, told):  # noqa: B905 - Python 3.9
        text = f"{does(Cohort(own, (one,)))}{at(own)}" if differ else others.strip("; ()")
        said += [f"; {one.name}: {text}"] if text else []
    outer = waits.of(members[0]) if differ else wait
    return outer, "".join(said[: inner.MOST_THREADS]), outer.place if differ else place


def _move(members: Sequence[Process], wait: Wait, view: Optional[View]) -> bool:
    """Whether all have moved. One that has used the CPU, but stands in the same wait as before, has not:
    another thread of it computes."""
    if (
        view is None
        or wait.kind in (kinds.STOPPED, kinds.BUSY)
        or not all(moved(one, view) for one in members)
    ):
        return False
    return wait.kind == kinds.OTHER or not wait.sure or any(elsewhere(one, view) for one in members)


def _used(members: Sequence[Process], view: View) -> str:
    """That they used the CPU though they wait, with the threads that ran in both samples."""
    if not all(moved(one, view) for one in members):
        return ""
    if len(members) > 1:
        return "; these processes used the CPU between the two samples"
    then = next(one for one in view.first if (one.node, one.pid) == (members[0].node, members[0].pid))
    ran = [name for name in running(members[0]) if name in running(then)]
    who = f", and its {ran[0]} was running in both" if len(ran) == 1 else ""
    return f"; the process used the CPU between the two samples{who}"


def _moves(members: Sequence[Process], view: View) -> str:
    """How they moved between the samples."""
    ends = "s" if len(members) == 1 else ""
    seen = [elsewhere(one, view) for one in members]
    if all(seen):
        return f"move{ends}"
    return f"move{ends} or use{ends} the CPU" if any(seen) else f"use{ends} the CPU"


def _unsure(process: Process, wait: Wait) -> str:
    if wait.thread is None or wait.thread is waits.working(process):
        if wait.place is not None and wait.place.text:
            return "inferred from its stack and the line at which it stands"
        return "inferred from its stack"
    working = waits.working(process)
    who = process.name if wait.thread.is_task or working is None else working.label
    one = wait.thread.label
    alike = inner.alike(process, wait)
    one = f"one of the {len(alike)} {alike[0].noun}s at that place" if len(alike) > 1 else one
    return f"inferred: that {who} waits for {one} is not shown"


def _in_loop(members: Sequence[Process]) -> str:
    """That the one process waits in a call that its event loop has made: no coroutine of it goes on."""
    wait = waits.of(members[0])
    thread = (
        wait.thread
        if len(members) == 1 and wait.kind not in (kinds.LOOP, kinds.IDLE, kinds.STOPPED)
        else None
    )
    if thread is None or thread.is_task or wait.place is None or not waits.runs_loop(thread):
        return ""
    return f"; its {thread.label} runs an event loop, whose other coroutines cannot go on meanwhile"


def _at_end(members: Sequence[Process]) -> str:
    """Whether the program of each is over but for its threads, in words."""
    over = all(_is_over(one.main) for one in members)
    whose = "its main thread has come to its end" if len(members) == 1 else "their main threads have ended"
    return f"; {whose}, and wait{'s' * (len(members) == 1)} for other threads" * over


def _is_over(main: Optional[Thread]) -> bool:
    ends = main is not None and any(one.function in ("_shutdown", "_python_exit") for one in main.frames)
    return main is not None and ends and waits.own_frame(main) is None
