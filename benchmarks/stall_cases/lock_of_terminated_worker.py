"""A worker is terminated by its time limit while it has the replay's multiprocessing lock: the trainer waits for the lock.
---
ranks: 2
expect:
  kind: [lock, worker-gone]
  ranks: [1]
  says: [add_rows, all_reduce]
  never: ["sleeps", "computes", "(?i)network", "(?i)queue"]
"""

import multiprocessing
import time

import _kit
import torch

fork = multiprocessing.get_context("fork")
replay_lock = fork.Lock()


def worker() -> None:
    with replay_lock:
        time.sleep(3600)


def add_rows() -> None:
    with replay_lock:
        print("rows", flush=True)


dist = _kit.gloo()
if _kit.RANK == 1:
    child = fork.Process(target=worker)
    child.start()
    time.sleep(1)
    child.terminate()
    child.join()
    _kit.here()
    add_rows()
dist.all_reduce(torch.ones(4))
