"""Rank 1 waits for rollouts whose semaphore was never released, as failed ones kept it.
---
ranks: 2
expect:
  kind: [lock, future]
  ranks: [1]
  says: ["rollout|collect", all_reduce]
  never: ["rank 0( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)"]
"""

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import _kit
import torch

dist = _kit.gloo()
slots = threading.Semaphore(2)


def rollout(number: int) -> int:
    slots.acquire()
    if number % 2 == 0:
        raise ValueError(f"prompt {number} is too long")  # and the slot is lost
    slots.release()
    return number


def collect(pool: ThreadPoolExecutor) -> list[int]:
    futures = [pool.submit(rollout, number) for number in range(8)]
    wait(futures, timeout=1.0)
    _kit.here()
    return [future.result() for future in futures if future.exception() is None]


if _kit.RANK == 1:
    with ThreadPoolExecutor(4, thread_name_prefix="rollout") as pool:
        print(collect(pool))
dist.all_reduce(torch.ones(4))
