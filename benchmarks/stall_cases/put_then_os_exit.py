"""A simulator process puts its episodes into a queue and leaves with os._exit() before the queue's feeder thread has written them: the trainer waits in get() for what was never sent.
---
expect:
  kind: [queue, pipe, worker-gone, other]
  says: ["collect|queue"]
  never: ["(?i)computes", "(?i)sleeps", "(?i)each other", "(?i)holds the lock"]
"""

import multiprocessing
import os
import time

import _kit

context = multiprocessing.get_context("fork")


def simulate(results, seed: int) -> None:
    episodes = [{"seed": seed, "step": step, "reward": float(step % 7)} for step in range(60_000)]
    results.put(episodes)
    os._exit(0)  # the simulator's own exit hooks crash


def collect(results, count: int) -> int:
    rows = 0
    for _ in range(count):
        rows += len(results.get())
    return rows


_kit.steps()
results = context.Queue()
workers = [
    context.Process(target=simulate, args=(results, seed), name=f"simulator-{seed}") for seed in range(2)
]
for worker in workers:
    worker.start()
time.sleep(2)
_kit.here()
print(collect(results, len(workers)))
for worker in workers:
    worker.join()
