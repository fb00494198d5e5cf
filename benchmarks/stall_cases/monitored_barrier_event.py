"""Rank 2 waits for an event whose thread died; the others are in a monitored barrier.
---
ranks: 4
expect:
  kind: [lock, idle, other]
  ranks: [2]
  frame: await_evaluation
  says: [monitored_barrier]
  never: ["rank [013]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)"]
"""

import threading
from datetime import timedelta

import _kit

dist = _kit.gloo()
finished = threading.Event()


def evaluate() -> None:
    scores: dict[str, float] = {}
    print(scores["pass@1"])  # KeyError ends the thread
    finished.set()


def await_evaluation() -> None:
    thread = threading.Thread(target=evaluate, name="evaluation", daemon=True)
    thread.start()
    thread.join()
    _kit.here()
    finished.wait()


if _kit.RANK == 2:
    await_evaluation()
dist.monitored_barrier(timeout=timedelta(hours=1))
