"""The checkpoint saver's pool has one thread, and its task waits for a second task of the same pool.
---
ranks: 2
expect:
  kind: [future]
  ranks: [1]
  says: ["save_all|write_shard|finish", all_reduce]
  never: ["(?i)network", "sleeps", "computes", "queue between"]
"""

from concurrent.futures import ThreadPoolExecutor

import _kit
import torch

saver = ThreadPoolExecutor(1, thread_name_prefix="saver")


def write_shard(number: int) -> int:
    return number


def save_all(shards: int) -> int:
    return sum(saver.submit(write_shard, number).result() for number in range(shards))


def finish(pending) -> None:
    print("saved", pending.result(), flush=True)


dist = _kit.gloo()
if _kit.RANK == 1:
    _kit.here()
    finish(saver.submit(save_all, 3))
dist.all_reduce(torch.ones(4))
