"""Rank 0 holds its weights' lock around an rpc_sync to rank 1, whose handler calls rank 0 back for the weights: that handler waits for the lock.
---
ranks: 2
expect: {kind: [lock, future, waits, several], says: ["weights|pull"], never: ["computes", "sleeps", "is stopped", "gone"]}
"""

import threading

import _kit
import torch.distributed.rpc as rpc

lock = threading.Lock()


def weights() -> int:
    with lock:
        return 1


def pull_and_score(number: int) -> int:
    if number == 3:
        return rpc.rpc_sync("worker0", weights, timeout=0)
    return number


def step(number: int) -> int:
    with lock:
        return rpc.rpc_sync("worker1", pull_and_score, args=(number,), timeout=0)


rpc.init_rpc(f"worker{_kit.RANK}", rank=_kit.RANK, world_size=2)
if _kit.RANK == 0:
    for number in range(5):
        if number == 3:
            _kit.here()
        print(f"step {step(number)}", flush=True)
rpc.shutdown()
