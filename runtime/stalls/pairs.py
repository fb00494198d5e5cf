"""Ranks in `send` or `recv` while the rest waits in a collective."""

from __future__ import annotations

import re
from typing import List, Optional, Sequence

from jobspec.runtime.stalls import kinds
from jobspec.runtime.stalls.cohorts import Cohort

_OPEN = (
    "; do all do one before the other (`batch_isend_irecv` does both)? Compare partner, tag, sizes and group"
)
SIDES = {  # of what all ranks do: why that stands, and what to see
    "send": (
        "each of them sends there; a receive that was begun before, as by `irecv`, no stack shows",
        f"see whether the one to which each sends receives from that one at all{_OPEN}",
    ),
    "recv": (
        "each of them receives there; what was sent before, as by `isend`, no stack shows",
        f"see whether the one from which each receives sends to that one at all{_OPEN}",
    ),
}
_PARTNER = re.compile(r"\b(?:send|recv)\w*\([^=]*?(?:\b(?:dst|src)=|, )(\d+)\s*[,)]")


def side(group: Cohort) -> str:
    """`send` or `recv`; empty for a collective of all."""
    name = group.wait.op.lstrip("i")[:4]
    return name if group.wait.kind == kinds.COLLECTIVE and name in SIDES else ""


def apart(waiting: Sequence[Cohort]) -> List[Cohort]:
    """The one rank in `send` or `recv`, or the two that are so by their lines with each other, where the
    rest waits in one collective."""
    two = [group for group in waiting if side(group)]
    rest = [group for group in waiting if group not in two]
    firm = len(rest) == 1 and rest[0].wait.kind == kinds.COLLECTIVE and rest[0].wait.op != kinds.WORK
    if not firm or any(len(group.members) > 1 for group in two):
        return []
    return two if len(two) == 1 or _are_partners(two) else []


def _are_partners(two: Sequence[Cohort]) -> bool:
    ranks = [group.members[0].rank for group in two]
    return (
        len({side(group) for group in two}) == 2 == len(two) and [_partner(one) for one in two] == ranks[::-1]
    )


def _partner(group: Cohort) -> Optional[str]:
    """The rank to which it sends, or from which it receives, by the number in its line."""
    found = _PARTNER.search(group.wait.place.text) if group.wait.place else None
    return found[1] if found else None
