"""Connections between processes of the run over which nothing arrives any more.

What is sent is sent again, and the other host acknowledges none of it. A stopped process does not look so:
its kernel answers for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Set, Tuple

from jobspec.runtime.stalls import kinds, waits
from jobspec.runtime.stalls.cohorts import View
from jobspec.runtime.stalls.kinds import ON_RANKS
from jobspec.runtime.stalls.stacks import Process

AGAIN = 3  # a packet that is lost once or twice is none


@dataclass(frozen=True)
class Link:
    """One direction of a connection."""

    sender: Process
    receiver: Process
    near: str
    far: str
    sent: int  # bytes that are not acknowledged
    again: int

    def __str__(self) -> str:
        return (
            f"{self.sent} bytes from {self.sender.name} ({self.near}) to {self.receiver.name} ({self.far})"
            f" are not acknowledged by that host, though sent {self.again} times again"
        )


def broken(view: View) -> List[Link]:
    """The connections over which nothing arrives, between processes that wait for each other."""
    ends: Dict[Tuple[str, str], Process] = {}
    for process in view.last:
        for row in process.facts.get("sockets", ()):
            ends[(str(row[0]), str(row[1]))] = process
    return [
        Link(process, ends[(far, near)], near, far, sent, again)
        for process in view.last
        for near, far, _, sent, _, again in (row for row in process.facts.get("sockets", ()) if len(row) > 5)
        if sent and again >= AGAIN and (far, near) in ends and _waits(process, ends[(far, near)])
    ]


def _waits(*both: Process) -> bool:
    told = {waits.of(process).kind for process in both}
    return bool(told & {*ON_RANKS, kinds.NETWORK, kinds.STORE, kinds.LOOP, kinds.RAY})


def common_node(links: List[Link]) -> str:
    """The node that all these connections have an end on, where it is only one of several."""
    pairs: List[Set[str]] = [{link.sender.node, link.receiver.node} for link in links]
    common = set.intersection(*pairs) if pairs else set()
    return common.pop() if len(common) == 1 and all(len(pair) == 2 for pair in pairs) else ""
