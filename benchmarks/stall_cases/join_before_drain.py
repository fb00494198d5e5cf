"""The parent joins a child before it empties its queue: the child cannot end with 8 MB in the pipe.
---
expect:
  kind: [join, queue, pipe, subprocess]
  says: ["(?i)queue|pipe|feed", "(?i)join|child|exit|to end"]
  never: ["(?i)sleeps", "(?i)queue is empty|nobody puts"]
"""

import multiprocessing
from typing import Any

import _kit

context = multiprocessing.get_context("fork")


def score(results: Any) -> None:
    results.put(bytes(8 << 20))


def collect() -> int:
    results = context.Queue()
    worker = context.Process(target=score, args=(results,), name="scorer")
    worker.start()
    _kit.here()
    worker.join()
    return len(results.get())


_kit.steps()
print(collect())
