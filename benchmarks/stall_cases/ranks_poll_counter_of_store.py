"""All ranks count themselves in a store and poll until it says four: there are only three of them.
---
ranks: 3
expect:
  kind: [sleep, store, waits, rendezvous]
  ranks: []
  says: [wait_for_all]
  never: ["rank [0-2] on", "computes", "is gone", "(?i)queue"]
"""

import time

import _kit
import torch.distributed as torch_dist


def wait_for_all(store, count: int) -> None:
    store.add("ready", 1)
    while int(store.get("ready")) < count:
        time.sleep(0.5)


dist = _kit.gloo()
store = torch_dist.distributed_c10d._get_default_store()
if _kit.RANK == 0:
    _kit.here()
wait_for_all(store, _kit.WORLD + 1)
dist.barrier()
