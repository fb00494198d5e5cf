"""How far staging is, from a run's events: for `status`, and the bar of a run that is followed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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

    @property
    def share(self) -> float:
        """0 to 1."""
        return self.bytes / self.total if self.total else 1.0

    def text(self) -> str:
        """`model 25% of 1.2 TB, 900 MB/s, 1000 s left`."""
        words = [f"{self.item} {self.share:.0%} of {_decimal(self.total)}", f"{_decimal(self.rate)}/s"]
        if self.eta_s is not None:
            words.append(f"{self.eta_s:.0f} s left")
        return ", ".join(words)

    def origin(self) -> str:
        """Where all bytes so far came from; empty on a node that copies alone."""
        if not self.peers:
            return ""
        return f"{_decimal(self.storage)} from storage, {_decimal(self.peers)} from nodes"


@dataclass(frozen=True)
class StageProgress:
    """The staging of all nodes. The slowest node counts; the others gave up on the nodes in `left_out`."""

    nodes: tuple[NodeProgress, ...] = ()
    left_out: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    restarts: int = 0  # of connections to the hub
    paused: str = ""  # why the hub has the nodes wait

    @property
    def slowest(self) -> NodeProgress | None:
        return min(self.nodes, key=lambda node: node.share, default=None)

    @property
    def share(self) -> float:
        """0 to 1, of the slowest node's item; 0 when nothing is known."""
        return self.slowest.share if self.slowest else 0.0

    def text(self) -> str:
        """One line for people; empty when nothing is known."""
        if self.slowest is None:
            return f"waiting for {self.waiting[0]}" if self.waiting else self.paused
        words = [self.slowest.text()]
        if len(self.nodes) > 1:
            words.append(f"slowest of {len(self.nodes)} nodes: {self.slowest.node}")
        if self.left_out:
            words.append(f"left out: {', '.join(self.left_out)}")
        if self.restarts:
            words.append(f"connections made anew: {self.restarts}")
        if self.paused:
            words.append(self.paused)
        return ", ".join(words)


@dataclass
class StageTracker:
    """Takes a followed run's events in any portions and keeps a line for each node.

    `running` says whether the newest attempt is in phase `stage`; other phases may run beside it.
    """

    running: bool = False
    _attempt: int = 0
    _nodes: dict[str, NodeProgress] = field(default_factory=dict)
    _left_out: dict[str, None] = field(default_factory=dict)
    _waiting: dict[str, str] = field(default_factory=dict)
    _restarts: int = 0
    _paused: dict[str, str] = field(default_factory=dict)

    def take(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Rows of events.jsonl; `attempt`, where a row has it, tells a new attempt from the old one."""
        for row in events:
            attempt = row.get("attempt", self._attempt)
            if attempt != self._attempt:
                self._start(attempt)
            if row.get("phase") == "stage":
                self._stage(row)

    @property
    def progress(self) -> StageProgress:
        return StageProgress(
            tuple(self._nodes.values()),
            tuple(self._left_out),
            tuple(self._waiting.values()),
            self._restarts,
            next(iter(self._paused.values()), ""),
        )

    def _start(self, attempt: int) -> None:
        self._attempt, self.running = attempt, False
        self._nodes.clear()
        self._left_out.clear()
        self._waiting.clear()
        self._paused.clear()
        self._restarts = 0

    def _stage(self, row: Mapping[str, Any]) -> None:
        event, node = row.get("event"), str(row.get("node", ""))
        if event == "progress":
            self._progress(node, row.get("data") or {})
        elif event in ("start", "end") and not node:
            self.running = event == "start"

    def _progress(self, node: str, data: Mapping[str, Any]) -> None:
        what = data.get("what")
        if what == "progress":
            before = self._nodes.get(node)
            self._nodes[node] = _node(node, data)
            self._waiting.pop(node, None)
            if before is None or before.bytes != self._nodes[node].bytes:
                self._paused.pop(node, None)
        elif what == "ready":
            self._waiting.pop(node, None)
        elif what == "waiting":
            self._waiting[node] = str(data.get("holder", ""))
        elif what == "restarted":
            self._restarts += 1
        elif what == "paused":
            self._paused[node] = (
                f"{data.get('why', '')}: {node or 'the node'} waits {data.get('seconds', 0):.0f} s"
            )
        elif what == "peer" and data.get("state") == "excluded":
            self._left_out[str(data.get("peer", ""))] = None


def _decimal(count: float) -> str:
    """A number of bytes as storage and links count them: `999 B`, `1.5 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


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
