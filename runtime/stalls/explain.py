"""What the dumps of all nodes say together: ranks in the same frame are one group, and the one that differs.

Pure functions over processes of one or two samples. What is inferred is said to be; where no rule names
anybody, nobody is named.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Optional, Sequence

from jobspec.runtime.stalls import all_ranks, kinds, links, on_ray, ras, retries, waits
from jobspec.runtime.stalls.blame import blame
from jobspec.runtime.stalls.chains import acts, behind, copied, follow, in_circle, other_end, polls, waits_for
from jobspec.runtime.stalls.cohorts import (
    BUSY_SHARE,
    SHOWN,
    Cohort,
    View,
    busy_share,
    by_callers,
    cohorts,
    does,
    frozen,
    is_service,
    names,
    ranks,
    role,
    where,
)
from jobspec.runtime.stalls.explanation import Explanation
from jobspec.runtime.stalls.flight import Front
from jobspec.runtime.stalls.kinds import ON_RANKS
from jobspec.runtime.stalls.libraries import is_library
from jobspec.runtime.stalls.peers import ON_CHILDREN
from jobspec.runtime.stalls.stacks import Frame, Process

POLL_SHARE = 0.1  # of a core: who looks again and again whether it may go on


def explain(view: View) -> Explanation:
    """The first cause that a rule finds, in the order of what is certain; else that none is shown."""
    still, view = frozen(view), _whole(view)
    people = [process for process in view.last if not is_service(process)]
    # Of whom no stack was taken nothing is known: it is no group, and nobody to blame.
    unseen = [process for process in people if not process.threads and process.state not in ("T", "D")]
    groups = cohorts(process for process in people if process not in unseen)
    found = next(
        (one for rule in _RULES if (one := rule(view, people, groups)) is not None),
        None,
    ) or Explanation("unknown", "the dumps do not show why the run stands still", inferred=True)
    found = retries.add(found, view)
    dead = [str(row) for row in view.ray.get("dead", ())]
    if dead and found.kind != "ray-actor-dead":
        told = f"Ray says that an actor is dead: {dead[0]}"
        found = replace(found, why="; ".join(part for part in (found.why, told) if part))
    complaint = next((one for one in view.ras if one.pids & {process.pid for process in people}), None)
    if complaint and found.kind in ("collective-all", "collective-order", "rank-differs", "unknown"):
        found = replace(found, why="; ".join(part for part in (found.why, str(complaint)) if part))
    if unseen:
        told = f"no stack was taken of {names(unseen)}"
        found = replace(found, why="; ".join(part for part in (found.why, told) if part))
    node = found.node or (found.named[0].node if len({one.node for one in found.named}) == 1 else "")
    return replace(found, cohorts=tuple(groups), frozen=still, node=node)


def _whole(view: View) -> View:
    """The view with the first sample's stack of a process that computed while the second was taken, where
    that one has lost frames of the program: nobody stops a process for its stack. So too, with its calls, of
    one that was met in the moment in which it looks whether it may go on, between two naps."""
    before = {(one.node, one.pid): one for one in view.first}
    second = []
    for process in view.second:
        then = before.get((process.node, process.pid))
        mine = waits.of(process)
        if then is not None and mine.kind == kinds.BUSY:
            if mine.place is None and waits.of(then).place is not None:
                process = replace(process, threads=then.threads)
            elif _naps(process, then):
                calls = then.facts.get("calls", {})
                process = replace(process, threads=then.threads, facts={**process.facts, "calls": calls})
        second.append(process)
    return replace(view, second=second)


def _naps(process: Process, then: Process) -> bool:
    """Whether it slept or waited in the same function in the first sample, and has used little of a core
    since."""
    before, mine = waits.of(then), waits.of(process)
    known = "cpu_s" in process.facts and "cpu_s" in then.facts
    if not known or before.place is None or mine.place is None or before.kind == kinds.BUSY:
        return False
    share = busy_share(process, then)
    if before.kind == kinds.SLEEP and before.place == mine.place:
        return share < BUSY_SHARE
    here, there = ((one.file, one.function) for one in (mine.place, before.place))
    return here == there and share < POLL_SHARE


# The rules, in order.


def _stopped(view: View, people: Sequence[Process], groups: Sequence[Cohort]) -> Optional[Explanation]:
    stopped = [process for process in people if process.state == "T"]
    if not stopped:
        return None
    ends = [(one, behind(one, view)) for one in people if one not in stopped]
    wait = cohorts(one for one, end in ends if end is not None and end.to in stopped)
    said = "; ".join(f"{group.names} {does(group)}{where(group)}" for group in wait[:3])
    found = blame("stopped", stopped, view)
    return replace(found, what=f"{found.what}, while {said}") if said else found


def _disk(view: View, people: Sequence[Process], groups: Sequence[Cohort]) -> Optional[Explanation]:
    before = {(process.node, process.pid) for process in view.first if process.state == "D"}
    stuck = [process for process in people if process.state == "D" and (process.node, process.pid) in before]
    found = blame("disk", stuck, view) if stuck else None
    return replace(found, inferred=not view.second) if found else None


def _half_open(view: View, people: Sequence[Process], groups: Sequence[Cohort]) -> Optional[Explanation]:
    """A network that delivers nothing between processes of the run, while they wait for each other."""
    found = links.broken(view)
    if not found:
        return None
    waiting = next((group for group in groups if group.wait.kind in ON_RANKS), None)
    met = f", while {waiting.names} {does(waiting)}{where(waiting)}" if waiting else ""
    rest = len(found) - 1
    more = f"; so it is with {rest} further connection{'s' if rest > 1 else ''}" if rest else ""
    fix = "look at the network between these hosts: firewall rules, a route, MTU, a cable or switch"
    place = waiting.wait.place if waiting else None
    node = links.common_node(found)
    return Explanation("network-half-open", f"{found[0]}{more}{met}", "", fix, frame=place, node=node)


def _missing_rank(view: View, people: Sequence[Process], groups: Sequence[Cohort]) -> Optional[Explanation]:
    """A rank without a process, while others wait for it. Only where every node gave its dump."""
    ranked = [process for process in people if process.rank.isdecimal() and process.facts.get("world")]
    worlds = {int(process.facts["world"]) for process in ranked}
    waiting = [group for group in groups if group.wait.kind in ON_RANKS]
    # Of a process in state D, or one that ended while it was looked at, the environment is not read.
    unread = [process for process in people if process.state == "D" or process.facts.get("stuck")]
    if not view.complete or len(worlds) != 1 or not waiting or unread:
        return None
    missing = sorted(set(range(worlds.pop())) - {int(process.rank) for process in ranked})
    if not missing:
        return None
    verb = "has" if len(missing) == 1 else "have"
    seen = f"{ranks(missing)} {verb} no process that is seen on any node"
    what = f"{seen}, and {waiting[0].names} {does(waiting[0])}"
    why = "ended or never started, unless a process has changed its RANK"
    return Explanation(
        "rank-gone", what, why, "see whether the logs have the end of that rank", frame=waiting[0].wait.place
    )


def _by_recorder(view: View, people: Sequence[Process], groups: Sequence[Cohort]) -> Optional[Explanation]:
    """By torch's flight recorder or NCCL's watchdog."""
    front = next((front for front in view.fronts if front.absent or front.other), None)
    if front is None:
        return None
    blamed = front.absent or tuple(rank for rank, _ in front.other)
    named = [process for process in people if process.rank in {str(rank) for rank in blamed}]
    return of_front(front, named, view)


def of_front(front: Front, named: Sequence[Process] = (), view: Optional[View] = None) -> Explanation:
    """A collective that not all ranks have come to, with what those do instead where a stack shows it."""
    sizes = f" ({front.sizes})" if front.sizes else ""
    op = f"`{front.op}`{sizes}, number {front.number} of group `{front.group}`"
    frame = _own(front.frames)
    where = f" at {frame}" if frame else ""
    asked = _have(front.waiting)
    if front.absent:
        what = f"{_have(front.absent)} not come to the collective {op}, which {asked} asked for{where}"
        doing = blame("collective-absent", named, view) if named and view is not None else None
        if doing is not None:
            return replace(doing, what=f"{what}: {doing.what}")
        fix = "take the stack of that rank, and see what it does instead"
        return Explanation(
            "collective-absent", what, _unseen(front), fix, blocked=True, named=tuple(named), frame=frame
        )
    if not front.other:
        what = f"the collective {op}, which {asked} asked for{where}, has not ended"
        fix = "take the stacks of the other ranks, and see whether one of them does something else"
        return Explanation("collective-all", what, _unseen(front), fix, inferred=True, frame=frame)
    said = "; ".join(f"rank {rank} has asked for `{text}`" for rank, text in front.other[:SHOWN])
    what = f"the ranks disagree at {op}: {asked} asked for it{where}, but {said}"
    fix = "see whether all ranks take the same branch, with the same sizes, before this call"
    frame = _own(front.others_frames) or frame
    even = len(front.other) >= len(front.waiting)
    blamed = () if even else tuple(named)
    return Explanation(
        "collective-differs", what, _unseen(front), fix, blocked=False, named=blamed, frame=frame
    )


def _by_one_side(view: View, people: Sequence[Process], groups: Sequence[Cohort]) -> Optional[Explanation]:
    """The recorders of those who wait, without one of anybody for whom they wait: nobody is to blame."""
    front = next((front for front in view.fronts if front.waiting and front.unknown), None)
    return of_front(front) if front else None


def _have(numbers: Sequence[int]) -> str:
    return f"{ranks(numbers)} {'has' if len(numbers) == 1 else 'have'}"


def _own(frames: Sequence[Frame]) -> Optional[Frame]:
    return next((frame for frame in frames if not is_library(frame)), None)


def _unseen(front: Front) -> str:
    return f"nothing is known of {ranks(front.unknown)}" if front.unknown else ""


def _by_ras(view: View, people: Sequence[Process], groups: Sequence[Cohort]) -> Optional[Explanation]:
    """By NCCL's RAS: ranks that do not answer it, or that have launched less than most others."""
    trouble = ras.first(view.ras)
    if trouble is None:
        return None
    pids = {member.pid for member in trouble.missing or trouble.lagging}
    known = [process for process in people if process.pid in pids]
    if len(known) == len(pids):  # else pids of other nodes are the same, or the ranks are not of this run
        told = blame("collective-absent", known, view)
        return replace(told, what=f"{trouble}: {told.what}")
    if known or (people and not trouble.missing):
        return None
    gone = bool(people) and view.complete
    lives = "" if gone else ", and take its stack if it lives"
    fix = f"see whether the logs have the end of that process{lives}"
    what = f"{trouble}{', and it runs on no node of the run' if gone else ''}"
    return Explanation("rank-gone" if gone else "collective-absent", what, "", fix, inferred=True)


def _ranks(view: View, people: Sequence[Process], groups: Sequence[Cohort]) -> Optional[Explanation]:
    """Ranks of one role, some of which wait for the others in a collective."""
    by_role: Dict[str, List[Cohort]] = {}
    for group in groups:
        by_role.setdefault(role(group.members[0]), []).append(group)
    parts = [
        (
            [group for group in mine if group.wait.kind in ON_RANKS],
            [g for g in mine if g.wait.kind not in ON_RANKS and not _started(g, mine)],
        )
        for mine in by_role.values()
    ]
    for waiting, others in parts:
        if waiting and others:
            told = blame("rank-differs", _odd(_first(others, view), view), view)
            met = "; ".join(f"{group.names} {does(group)}{where(group)}" for group in waiting[:3])
            return replace(told, what=f"{told.what}, while {met}")
    for waiting, _ in parts:
        if len(waiting) > 1 or (waiting and len(waiting[0].members) > 1):
            return all_ranks.all_wait(waiting, groups)
    return None


def _odd(groups: Sequence[Cohort], view: View) -> Sequence[Process]:
    """The smallest group; with it the one that waits for it, where it waits for that one."""
    odd = min(groups, key=lambda group: (group.wait.kind == kinds.IDLE, len(group.members)))
    hop = other_end(odd.members[0], view) if len(odd.members) == 1 else None
    every = [one for group in groups for one in group.members]
    back = other_end(hop.to, view) if hop is not None and hop.to in every else None
    if hop is None or hop.to in odd.members or back is None or back.to is not odd.members[0]:
        return odd.members
    return (*odd.members, hop.to)


def _started(group: Cohort, mine: Sequence[Cohort]) -> bool:
    """Whether the group has started others of its kind, and waits for them: forked ranks have its command."""
    parents = {(one.node, one.facts.get("parent")) for other in mine for one in other.members}
    return group.wait.kind in ON_CHILDREN and all((one.node, one.pid) in parents for one in group.members)


def _first(groups: Sequence[Cohort], view: View) -> Sequence[Cohort]:
    """The groups that are not shown to wait for another one of them; all where each does."""
    every = [one for group in groups for one in group.members]
    free = [
        group for group in groups
        if (end := behind(group.members[0], view)) is None or end.to in group.members or end.to not in every
    ]  # fmt: skip
    return free or groups


def _chain(view: View, people: Sequence[Process], groups: Sequence[Cohort]) -> Optional[Explanation]:
    """Without a collective: from whoever waits for another process to the one that waits for none."""
    able = [process for process in people if waits.of(process).kind != kinds.IDLE and process.threads]
    able = retries.standing(able, view)  # who has only just begun is no end of a wait of that length
    if not able:
        return None
    every = retries.standing([process for process in people if process.threads], view)
    ends = _ends(able, every)
    if all(waits.of(one).kind in (kinds.RAY, kinds.PLACEMENT) for one in ends):
        return on_ray.all_wait(people, view)
    # An actor that sleeps for a moment is one that works beside the others, such as a logger.
    steady = [one for one in ends if not (one.command.startswith("ray::") and polls(one))] or ends
    firm = [one for one in steady if waits.of(one).kind != kinds.LOOP] or steady
    firm = [one for one in firm if acts(one)] or firm
    firm = [one for one in _ends(_roots(able), every) if one in firm] or firm
    best = cohorts(firm)
    alike = len(best) > 1 and len(best[-1].members) == len(best[-2].members)
    circle = alike and len(firm) == 2 and in_circle(firm[0], firm)
    if not circle and (alike or len({role(one) for one in firm}) > 1):
        return _several(best)
    same = next(group for group in groups if best[-1].members[0] in group.members)
    mine = firm[:1] if circle else [one for one in same.members if one in able]
    found = blame("waits", mine, view)
    opened = [one for one in people if waits.of(one).op == kinds.ACCEPT]
    others = [one for one in (*firm, *able, *opened) if one not in found.named and one.name not in found.what]
    found = replace(found, named=tuple(firm)) if circle else _of_all(found, people, every)
    if others:
        said = "; ".join(f"{group.names} {does(group)}{where(group)}" for group in cohorts(others)[:3])
        circles = [one for one in found.named if in_circle(one, every)]
        each = all(waits_for(one, every) for one in (*found.named, *others))
        round_ = circles and each and not any(map(copied, found.named)) and "each waits" not in found.what
        found = replace(
            found, what=f"{found.what}, while {said}{': each seems to wait for another' if round_ else ''}"
        )
    return found


def _of_all(found: Explanation, people: Sequence[Process], seen: Sequence[Process]) -> Explanation:
    """Nobody is named where all ranks wait alike for something outside of them. The processes of one rank
    are that rank's, whatever they wait for."""
    ranked = [one for one in people if one.rank]
    able = [one for one in seen if waits.of(one).kind != kinds.IDLE]
    every = ranked if len({one.rank for one in ranked}) > 1 else list(able)
    outside = not any(in_circle(one, seen) for one in found.named) and "; behind it" not in found.what
    if len(every) < 2 or not outside or any(one not in found.named for one in every):
        return found
    if every is not ranked and len(every) < len(people):  # the others do nothing, or were not seen
        return found
    worlds = {str(one.facts.get("world", "")) for one in ranked}
    whole = every is ranked and worlds == {str(len({one.rank for one in ranked}))}
    who = "ranks" if every is ranked else "processes"
    differ = by_callers(Cohort(waits.of(every[0]), tuple(every)))
    told = ", but not by one call" if differ else ""
    what = f"{found.what}; all {who} {'of the run' if whole else 'that were seen'} do so{told}"
    return replace(found, what=what, named=() if every is ranked else found.named)


def _ends(starts: Sequence[Process], every: Sequence[Process]) -> List[Process]:
    """The ends of the chains that begin there, each once."""
    ends: List[Process] = []
    for start in starts:
        end = follow(start, every)
        if end not in ends:
            ends.append(end)
    return ends


def _roots(able: Sequence[Process]) -> List[Process]:
    """What the agents have started: what none of the others has, and is no worker of Ray."""
    pids = {(one.node, one.pid) for one in able}
    return [
        one for one in able
        if (one.node, one.facts.get("parent")) not in pids and not one.command.startswith("ray::")
    ]  # fmt: skip


def _several(best: Sequence[Cohort]) -> Explanation:
    said = "; ".join(f"{group.names} {does(group)}{where(group)}" for group in best[:4])
    what = f"of several processes none is shown to wait for another: {said}"
    return Explanation("several", what, "", "look at their stacks", inferred=True, frame=best[0].wait.place)


_RULES = (
    _stopped, _disk, _half_open, _missing_rank, _by_recorder, _by_ras, on_ray.demand, _ranks, _chain,
    _by_one_side,
)  # fmt: skip
