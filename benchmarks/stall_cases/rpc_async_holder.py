"""Rank 0 awaits an rpc_async of rank 1, whose handler sleeps between its tries to fetch a file.
---
ranks: 2
expect: {kind: [sleep, future, waits], ranks: [1], frame: fetch, says: [fetch]}
"""

import os
import time

import _kit
import torch.distributed.rpc as rpc


def fetch(name: str) -> bytes:
    if name != "good":
        _kit.here()
    while not os.path.exists(f"/tmp/no-such-{name}") and name != "good":
        time.sleep(2)
    return b""


rpc.init_rpc(f"worker{_kit.RANK}", rank=_kit.RANK, world_size=2)
if _kit.RANK == 0:
    for step in range(3):
        rpc.rpc_async("worker1", fetch, args=("good",), timeout=0).wait()
        print(f"step {step}", flush=True)
    future = rpc.rpc_async("worker1", fetch, args=("shard-3",), timeout=0)
    future.wait()
rpc.shutdown()
