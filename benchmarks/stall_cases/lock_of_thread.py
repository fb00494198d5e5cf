"""Rank 1 waits for a lock that another of its threads holds while it sleeps.
---
ranks: 2
expect: {kind: [lock], ranks: [1], frame: flush, says: ["waits for `lock`", flush]}
"""

import threading
import time

import _kit
import torch

dist = _kit.gloo()
lock = threading.Lock()


def flush() -> None:
    with lock:
        time.sleep(3600)


if _kit.RANK == 1:
    threading.Thread(target=flush, daemon=True, name="logger").start()
    time.sleep(0.5)
    _kit.here()
    with lock:
        print("never")
dist.all_reduce(torch.ones(4))
