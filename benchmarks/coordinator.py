"""How one head bears many agents: how long until all have joined, until a death is noticed, and the cost.

    python benchmarks/coordinator.py [--agents N] [--processes N] [--json]

The head is the runtime's own `Nodes`; the agents are real connections with heartbeats on loopback, from a few
processes. One of these is killed. The goal for 512 agents: 5 s and 2 s.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import secrets
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from jobspec.runtime.base import channel
from jobspec.runtime.base.identity import Identity

PATIENCE_S = 120.0


@dataclass(frozen=True)
class Measured:
    """Seconds, MiB and counts of the head's process."""

    agents: int
    joined_s: float
    lost: int  # of the process that was killed
    noticed_s: float  # the last of them
    memory_mib: float
    descriptors: int
    threads: int


def measure(agents: int, processes: int) -> Measured:
    """Let `agents` agents join one head, kill the first of their processes, and count."""
    from jobspec.runtime.head.nodes import Nodes  # the agents' processes need not load it

    token, size = secrets.token_hex(32), -(-agents // processes)
    lost: list[tuple[int, float]] = []
    who = Identity(Path("/run"), 1, 0, tuple(f"n{index}" for index in range(agents + 1)), token)
    head = Nodes(who, _ignore, _ignore, lambda index, _: lost.append((index, time.monotonic())), _ignore)
    port, before = head.listen([0]), threading.active_count()
    start = time.monotonic()
    joiners = [
        _joiner(first, min(first + size, agents + 1), port, token) for first in range(1, agents + 1, size)
    ]
    try:
        head.wait_connected(PATIENCE_S)
        joined = time.monotonic() - start
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        threads = threading.active_count() - before
        killed = time.monotonic()
        joiners[0].kill()
        head.wait(lambda: len(lost) >= min(size, agents), PATIENCE_S, list)
        noticed = max((when for _, when in lost), default=math.inf) - killed
        return Measured(agents, joined, len(lost), noticed, memory, descriptors, threads)
    finally:
        for joiner in joiners:
            joiner.kill()
            joiner.wait()
        head.close(0)


def _ignore(*_: object) -> None:
    return


def _joiner(first: int, end: int, port: int, token: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, __file__, "--join", str(first), str(end), str(port)]
    return subprocess.Popen(argv, env={**os.environ, "JOBSPEC_TOKEN": token})


def _join(first: int, end: int, port: int) -> None:
    """The agents of one process: connected, and sending heartbeats until it is killed."""

    def agent(index: int) -> None:
        hello = channel.Hello(index, f"n{index}")
        link = channel.find_head(["127.0.0.1"], [port], os.environ["JOBSPEC_TOKEN"], hello, PATIENCE_S)
        channel.keep_alive(link, threading.Event())

    threads = [threading.Thread(target=agent, args=(index,)) for index in range(first, end)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=512)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--join", nargs=3, type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.join:
        _join(*given.join)
        return
    row = asdict(measure(given.agents, given.processes))
    if given.json:
        print(json.dumps(row))
        return
    for name, value in row.items():
        print(f"{name:12} {value:.2f}" if isinstance(value, float) else f"{name:12} {value}")


if __name__ == "__main__":
    main()
