"""Several nodes for the staging tests: one thread for each, on loopback, with a folder of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stage_kit import Source, item

from jobspec.runtime import stage
from jobspec.runtime.swarm import Peer, Swarm

TOKEN = "cd" * 32


@dataclass
class Node:
    """One node's staging: what it opens, reports and returns."""

    index: int
    folder: Path
    source: Source = field(default_factory=Source)
    stall_s: float = 2.0
    slow_s: float = 2.0
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    result: stage.StageResult | None = None

    def __post_init__(self) -> None:
        self.swarm = Swarm(self.index, TOKEN, self.report, self.stall_s, self.slow_s)
        self.port = self.swarm.listen([0])

    @property
    def name(self) -> str:
        return f"n{self.index}"

    def report(self, event: str, data: Any) -> None:
        self.events.append((event, dict(data)))

    def stage(self, sources: Sequence[Path], peers: Sequence[Peer], deadline_s: float, **more: Any) -> None:
        self.swarm.meet(peers, self.source)
        items = [item(source, name=f"m{i}", **more) for i, source in enumerate(sources)]
        self.result = stage.run(
            items, str(self.folder), self.report, deadline_s, open_source=self.source, swarm=self.swarm
        )

    @property
    def done(self) -> stage.StageResult:
        assert self.result is not None
        return self.result

    def ready(self, number: int = 0) -> Path:
        return Path(self.done.ready[f"m{number}"])


def nodes(folder: Path, count: int, **more: Any) -> list[Node]:
    return [Node(index, folder / f"node {index}", **more) for index in range(count)]


def peers_of(all_nodes: Sequence[Node]) -> list[Peer]:
    return [Peer(node.name, "127.0.0.1", node.port) for node in all_nodes]


def stage_all(
    all_nodes: Sequence[Node],
    sources: Sequence[Path],
    deadline_s: float = 60.0,
    peers: Sequence[Peer] | None = None,
    delay: Callable[[int], float] = lambda index: 0.0,
    **more: Any,
) -> None:
    """All nodes stage `sources` at once; `delay` makes one late. Their swarms are closed at the end."""
    known = peers or peers_of(all_nodes)
    late = threading.Event()

    def work(node: Node) -> None:
        late.wait(delay(node.index))
        node.stage(sources, known, deadline_s, **more)

    threads = [threading.Thread(target=work, args=(node,)) for node in all_nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for node in all_nodes:
        node.swarm.close()


def read_in_all(all_nodes: Sequence[Node]) -> int:
    """Bytes that left the source, on all nodes together."""
    return sum(node.source.bytes for node in all_nodes)
