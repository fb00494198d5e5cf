"""Rank 0 asks rank 1 for a batch by rpc_sync; rank 1's replay queue is empty, as its producer thread has died.
---
ranks: 2
expect: {kind: [queue, future, waits], ranks: [1], frame: next_batch, says: [next_batch], never: ["rank 1[^;]*computes"]}
"""

import os
import queue
import threading

import _kit
import torch.distributed.rpc as rpc

REPLAY: queue.Queue = queue.Queue()


def produce() -> None:
    for step in range(3):
        REPLAY.put(step)
    raise RuntimeError("no more episodes")


def next_batch() -> int:
    if REPLAY.empty():
        _kit.here()
    return REPLAY.get()


os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
rpc.init_rpc(f"worker{_kit.RANK}", rank=_kit.RANK, world_size=2)
if _kit.RANK == 1:
    threading.Thread(target=produce).start()
else:
    for step in range(5):
        batch = rpc.rpc_sync("worker1", next_batch, timeout=0)
        print(f"step {step}", flush=True)
rpc.shutdown()
