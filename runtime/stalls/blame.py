"""What one process does, or several that do the same: the explanation that blames them."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional, Sequence, Tuple

from jobspec.runtime.stalls import far_ends, inner, kinds, locks, texts, waits
from jobspec.runtime.stalls.chains import behind
from jobspec.runtime.stalls.cohorts import Cohort, View, at, does, elsewhere, moved, where
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
    busy = view is not None and all(moved(process, view) for process in members)
    _, fix, blocked = phrase(wait)
    moves = busy and wait.kind not in (kinds.STOPPED, kinds.BUSY)
    now = "" if wait.kind == kinds.OTHER else f", and now {does(group)}"
    doing = f"{_moves(members, view)} between the two samples{now}" if view and moves else does(group)
    one = (
        wait.op not in ("", "pipe")
        and wait.kind in kinds.AT_ONE
        and len({waits.of(member).op for member in members}) == 1
    )
    on = f" on {wait.op}" if one and (wait.kind, wait.op) not in SPECIAL else ""
    what = f"{group.names} {doing}{on}{where(group)}{more}{_at_end(members)}"
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
    one = "that coroutine" if wait.thread.is_task else wait.thread.label
    return f"inferred: that it waits for {one} is not shown"


def _at_end(members: Sequence[Process]) -> str:
    """Whether the program of each is over but for its threads, in words."""
    over = all(_is_over(one.main) for one in members)
    return "; its main thread has come to its end, and waits for its threads" * over


def _is_over(main: Optional[Thread]) -> bool:
    ends = main is not None and any(one.function in ("_shutdown", "_python_exit") for one in main.frames)
    return main is not None and ends and waits.own_frame(main) is None
