"""Rank 1 waits for its asynchronous save, whose thread waits for an upload slot that an earlier error has kept.
---
ranks: 2
expect:
  kind: [lock, future]
  ranks: [1]
  says: [upload_shard, all_reduce]
  never: ["sleeps", "computes", "(?i)network", "(?i)queue"]
"""

import threading
from concurrent.futures import ThreadPoolExecutor

import _kit
import torch

upload_slots = threading.BoundedSemaphore(1)


def upload_shard(step: int) -> None:
    upload_slots.acquire()
    if step == 3:
        raise OSError("503 Slow Down")
    upload_slots.release()


def finish_save(pending) -> None:
    print(pending.exception(), flush=True)


dist = _kit.gloo()
saver = ThreadPoolExecutor(1, thread_name_prefix="saver")
finish_save(saver.submit(upload_shard, 3))
if _kit.RANK == 1:
    _kit.here()
    finish_save(saver.submit(upload_shard, 4))
dist.all_reduce(torch.ones(4))
