"""How far staging is, from a run's events: for `status`, and the bar of a run that is followed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NodeProgress:
    """One node's copy of one item. Bytes and bytes a second; `eta_s` is None while nothing moves.

    `storage` bytes came from shared storage, `peers` from other nodes, of all items of the phase so far.
    """

    node: str
    item: str
    bytes: int
    total: int
    rate: int = 0
    eta_s: float | None = None
    storage: int = 0
    peers: int = 0


@dataclass(frozen=True)
class StageProgress:
    """All nodes. A run is as far as its slowest node; `left_out` are nodes that the others gave up on."""

    nodes: tuple[NodeProgress, ...] = ()
    left_out: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()

    @property
    def slowest(self) -> NodeProgress | None:
        return min(self.nodes, key=lambda one: one.bytes / one.total if one.total else 1.0, default=None)

    @property
    def share(self) -> float:
        """0 to 1, of the slowest node's item; 0 when nothing is known."""
        slowest = self.slowest
        if slowest is None:
            return 0.0
        return slowest.bytes / slowest.total if slowest.total else 1.0

    def text(self) -> str:
        """One line for people; empty when nothing is known."""
        slowest = self.slowest
        if slowest is None:
            return f"waiting for {self.waiting[0]}" if self.waiting else ""
        words = [f"{slowest.item} {self.share:.0%}", f"{slowest.rate / 1e6:.0f} MB/s"]
        if slowest.eta_s is not None:
            words.append(f"{slowest.eta_s:.0f} s left")
        if len(self.nodes) > 1:
            words.append(f"slowest of {len(self.nodes)} nodes: {slowest.node}")
        if self.left_out:
            words.append(f"left out: {', '.join(self.left_out)}")
        return ", ".join(words)


def stage_progress(events: Iterable[Mapping[str, Any]]) -> StageProgress:
    """The state after `events` (rows of events.jsonl, older attempts' not among them)."""
    nodes: dict[str, NodeProgress] = {}
    left_out: dict[str, None] = {}
    waiting: dict[str, str] = {}
    for row in events:
        if row.get("phase") != "stage" or row.get("event") != "progress":
            continue
        node, data = str(row.get("node", "")), row.get("data", {})
        what = data.get("what")
        if what == "progress":
            nodes[node] = _node(node, data)
            waiting.pop(node, None)
        elif what == "ready":
            waiting.pop(node, None)
        elif what == "waiting":
            waiting[node] = str(data.get("holder", ""))
        elif what == "peer" and data.get("state") == "excluded":
            left_out[str(data.get("peer", ""))] = None
    return StageProgress(tuple(nodes.values()), tuple(left_out), tuple(waiting.values()))


def _node(node: str, data: Mapping[str, Any]) -> NodeProgress:
    eta = data.get("eta_s")
    return NodeProgress(
        node,
        str(data.get("name", "")),
        int(data.get("bytes", 0)),
        int(data.get("total", 0)),
        int(data.get("rate", 0)),
        float(eta) if eta is not None else None,
        int(data.get("source", 0)),
        int(data.get("peers", 0)),
    )
