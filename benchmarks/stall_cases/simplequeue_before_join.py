"""A worker puts a large result into a SimpleQueue, and the trainer joins it before it reads.
---
expect: {kind: [join, pipe, queue, waits], says: ["put|score"], never: ["computes", "sleeps", "empty"]}
"""

import multiprocessing

import _kit


def score(results) -> None:
    results.put(bytes(4 << 20))


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    _kit.steps()
    worker = context.Process(target=score, args=(results,), name="scorer")
    worker.start()
    _kit.here()
    worker.join()
    print(len(results.get()))
