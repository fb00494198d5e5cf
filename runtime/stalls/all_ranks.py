"""Ranks that all wait for other ranks: in one collective, in several, in `send` or `recv`, in a new group."""

from __future__ import annotations

from typing import Optional, Sequence, Tuple

from jobspec.runtime.stalls import kinds, pairs
from jobspec.runtime.stalls.cohorts import Cohort, by_callers, does, where
from jobspec.runtime.stalls.explanation import Explanation
from jobspec.runtime.stalls.libraries import is_library
from jobspec.runtime.stalls.phrases import DOES

_COMPARE = "compare both sides of each `send` and `recv`: partner, tag, sizes, group, how often it is called"

_MEMBERS = (
    "see which ranks belong to that group, and which of them do not come to it; who calls it and is not of it"
    " goes past at once, and torch warns of that in the log (`does not belong to the given group`)"
)


def all_wait(waiting: Sequence[Cohort], groups: Sequence[Cohort]) -> Explanation:
    """All ranks are in collectives: the same one, or several."""
    if all(group.wait.op == "init_process_group" for group in waiting):
        return _all_join(waiting, groups)
    if len(waiting) == 1:
        waiting = by_callers(waiting[0]) or waiting
    if len(waiting) == 1:
        only = waiting[0]
        what = f"all of {only.names} wait in the same place: `{only.wait.op}`{where(only)}"
        why = "they came there by the same lines; sizes, arguments (`src`, `group`) or devices may differ"
        fix = "compare the flight recorder's dumps (sizes and order), NCCL's log and the GPUs of all ranks"
        if pair := pairs.SIDES.get(pairs.side(only)):
            why = pair[0]
            fix = pair[1]
        return Explanation("collective-all", what, why, fix, inferred=True, frame=only.wait.place)
    said = "; ".join(f"{group.names} {does(group)}{where(group)}" for group in waiting[:4])
    one_place = len({(*group.wait.key, str(group.wait.place)) for group in waiting}) == 1
    how = "at one place, but came there by different calls" if one_place else "at different places"
    what = f"the ranks wait {how}: {said}"
    fix = (
        "see whether all ranks call the same operations, in the same order, of the same groups and with the"
        " same `src` or `dst`: is there a branch, a loop or a `continue` that only some take?"
    )
    if any(map(pairs.side, waiting)):
        fix = _COMPARE
    rare = _stranger(waiting)
    if two := pairs.apart(waiting):
        return _apart(two, what, rare)
    why = ""
    of_some = [group for group in waiting if _names_group(group)]
    if without := _without_group(waiting):
        mine = without.wait.place
        text = (
            f"`{without.wait.op}` has `group=` elsewhere in `{mine.function if mine else ''}`, and none here"
        )
        why = f"inferred from the lines: {text}, so it may be of all ranks"
        fix = "see whether this call should be given the group, as the other one in that function is"
        return Explanation(
            "collective-order", what, why, fix, False, True, without.members, without.wait.place
        )
    if rare in of_some or (of_some and not rare and len(of_some) < len(waiting)):
        here = rare or of_some[0]
        rare, fix = None, _MEMBERS
        why = f"where the group at {here.wait.place} has only some of the ranks, only these are waited for"
    return Explanation(
        "collective-order", what, why, fix, blocked=False,
        named=rare.members if rare else (), frame=(rare or waiting[-1]).wait.place,
    )  # fmt: skip


def _without_group(waiting: Sequence[Cohort]) -> Optional[Cohort]:
    """The only ranks whose line gives no group to an operation to which another line of that function gives
    one, where others of no group are at another operation."""
    of_some = {
        (one.wait.op, one.wait.place.function) for one in waiting if one.wait.place and _names_group(one)
    }
    plain = [one for one in waiting if one.wait.place and not _names_group(one)]
    found = [one for one in plain if one.wait.place and (one.wait.op, one.wait.place.function) in of_some]
    apart = [one for one in plain if one not in found and one.wait.op != found[0].wait.op] if found else []
    return found[0] if len(found) == 1 and apart else None


def _names_group(group: Cohort) -> bool:
    """Whether its line gives the collective a group."""
    return group.wait.place is not None and "group=" in group.wait.place.text


def _apart(two: Sequence[Cohort], what: str, rare: Optional[Cohort]) -> Explanation:
    """Ranks in `send` or `recv` that do not come to the collective of the others."""
    named = [one for group in two for one in group.members]
    why = "the others' collective may wait for it, unless their group leaves it out"
    if len(two) == 2:
        why = "inferred from their lines: these two are partners, and their `send` and `recv` do not meet"
    elif rare not in two:
        named = []
    place = two[0].wait.place
    return Explanation("collective-absent", what, why, _COMPARE, False, len(two) == 2, tuple(named), place)


def _all_join(waiting: Sequence[Cohort], groups: Sequence[Cohort]) -> Explanation:
    """All that were seen wait for others to join a process group; with who waits for them by Ray."""
    said = "; ".join(f"{group.names} {does(group)}{where(group)}" for group in waiting[:4])
    asking = [group for group in groups if group.wait.kind == kinds.RAY]
    met = f", while {asking[0].names} {does(asking[0])}{where(asking[0])}" if asking else ""
    why = "if one has not come, it is none of these; else their addresses, networks or world sizes may differ"
    place = waiting[0].wait.place
    return Explanation(
        "rendezvous", f"{said}{met}", why, DOES[kinds.RENDEZVOUS][1], inferred=True, frame=place
    )


def _stranger(waiting: Sequence[Cohort]) -> Optional[Cohort]:
    """The smallest group, where it is the only one of that size; else the only one that came there by other
    functions than the largest group did. None where neither tells."""
    least = len(waiting[-1].members)
    if least == len(waiting[0].members):
        return None
    rare = [group for group in waiting if len(group.members) == least]
    others = [group for group in rare if _way(group) != _way(waiting[0])]
    return rare[0] if len(rare) == 1 else others[0] if len(others) == 1 else None


def _way(group: Cohort) -> Tuple[str, ...]:
    """The functions of the program by which the group came to its line."""
    frames = group.wait.thread.frames if group.wait.thread else ()
    return tuple(frame.function for frame in frames if not is_library(frame))
