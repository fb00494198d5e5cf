"""A with-block of a thread pool waits at its end for a heartbeat that is told to stop only behind the block.
---
expect: {kind: [lock, join, future], ranks: [0], frame: heartbeat}
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import _kit


def heartbeat(stop: threading.Event, path: Path) -> None:
    while not stop.wait(30):
        path.touch()


def score(answer: str) -> float:
    return float(len(answer))


def score_batch(answers: list) -> list:
    stop = threading.Event()
    with ThreadPoolExecutor(4) as pool:
        pool.submit(heartbeat, stop, Path("/dev/null"))
        rewards = list(pool.map(score, answers))
        _kit.here()
    stop.set()
    return rewards


_kit.steps()
score_batch(["a", "bc", "def"])
