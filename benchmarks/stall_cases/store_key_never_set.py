"""Rank 2 waits in a TCPStore for the key of a policy version that nobody sets.
---
ranks: 3
expect:
  kind: [store, network, idle, other, unknown]
  ranks: [2]
  frame: wait_for_policy
  says: [all_reduce, "(?i)store|wait_for_policy|key"]
  never: ["rank [01]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)"]
"""

from datetime import timedelta

import _kit
import torch

dist = _kit.gloo()


def wait_for_policy(store: "torch.distributed.TCPStore", version: int) -> None:
    _kit.here()
    store.wait([f"policy/{version}"])


if _kit.RANK == 2:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(hours=1), wait_for_workers=False)
    store.set("policy/6", "ready")
    wait_for_policy(store, 7)
dist.all_reduce(torch.ones(4))
