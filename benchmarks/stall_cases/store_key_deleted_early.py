"""Rank 0 announces its weights by a key of the store and deletes it after the first receipt instead of the second; rank 2 comes later and waits for the deleted key.
---
ranks: 3
expect:
  kind: [store, rank-differs, collective-absent]
  ranks: [2]
  says: ["load_announced|store", "all_reduce"]
  never: ["rank [01]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)", "(?i)computes"]
"""

import time

import _kit
import torch

dist = _kit.gloo()
store = dist.PrefixStore("weights", dist.distributed_c10d._get_default_store())


def announce(version: int, path: str) -> None:
    store.set(f"version/{version}", path)
    while store.add(f"receipts/{version}", 0) < 1:  # there are two engines
        time.sleep(0.05)
    store.delete_key(f"version/{version}")


def load_announced(version: int) -> str:
    path = store.get(f"version/{version}").decode()
    store.add(f"receipts/{version}", 1)
    return path


if _kit.RANK == 0:
    announce(3, "/dev/shm/policy-3.safetensors")
elif _kit.RANK == 1:
    load_announced(3)
else:
    time.sleep(3)  # the last answers of its rollouts
    _kit.here()
    load_announced(3)
dist.all_reduce(torch.ones(4))
