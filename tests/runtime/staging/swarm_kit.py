"""Several nodes for the staging tests: one thread for each, on loopback, with a folder of its own."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobspec.runtime.staging import items as stage
from jobspec.runtime.staging.swarm import Peer, Swarm
from tests.runtime.staging.stage_kit import Source, item

TOKEN = "cd" * 32


@dataclass
class Node:
    """One node's staging: what it opens, reports and returns."""

    index: int
    folder: Path
    source: Source = field(default_factory=Source)
    stall_s: float = 20.0
    slow_s: float = 60.0
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
    first: int = 0,
    **more: Any,
) -> None:
    """All nodes stage `sources` at once. Their swarms are closed at the end.

    `delay` makes some late, in seconds; without the `first` nodes done, no other begins.
    """
    known = peers or peers_of(all_nodes)
    late = threading.Event()

    def work(node: Node) -> None:
        late.wait(delay(node.index))
        for thread in threads[:first] if node.index >= first else ():
            thread.join()
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


PROCESS = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.runtime.staging.stage_kit import Source, item
from tests.runtime.staging.swarm_kit import Node, Peer
class Marked(Source):
    def after(self, entry, view):
        if self.bytes >= int(sys.argv[5]):
            os.kill(os.getpid(), int(sys.argv[6]))
node = Node(int(sys.argv[2]), Path(sys.argv[3]), Marked())
print(node.port, flush=True)
peers = [Peer(*row) for row in json.loads(sys.stdin.readline())]
node.stage([Path(sys.argv[4])], peers, 60.0)
told = [[f.rule for f in node.done.findings], dict(node.done.ready), node.source.bytes]
print(json.dumps(told), flush=True)
sys.stdin.readline()
"""


class ProcessNode:
    """A node in a process of its own, which gets `signal` when it has read `at` bytes from the source."""

    def __init__(self, index: int, folder: Path, source: Path, at: int = 1 << 60, number: int = 9) -> None:
        kit = str(Path(__file__).parents[3])
        told = [kit, str(index), str(folder), str(source), str(at), str(number)]
        self.index, self.name = index, f"n{index}"
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROCESS, *told], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def begin(self, peers: Sequence[Peer]) -> None:
        assert self.process.stdin is not None
        rows = [[peer.name, peer.host, peer.port] for peer in peers]
        self.process.stdin.write(json.dumps(rows) + "\n")
        self.process.stdin.flush()

    def told(self) -> Any:
        """[rules, ready paths, bytes read], None when it was killed."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class Relay:
    """Passes a node's connections on, and changes one byte after `at` bytes, `times` times."""

    def __init__(self, port: int, at: int, times: int) -> None:
        self._target, self._at, self._left = port, at, times
        self._passed = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, change: bool) -> None:
        with contextlib.suppress(OSError):
            while data := bytearray(source.recv(65536)):
                if change:
                    self._passed += len(data)
                    # Long reads are a chunk's bytes; a line of the conversation is short.
                    if self._passed > self._at and self._left and len(data) > 4096:
                        self._left -= 1
                        data[len(data) // 2] ^= 1
                target.sendall(data)
        for sock in (source, target):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
