"""The signal of a preemption reaches rank 1 only: its handler is in the barrier of the last checkpoint, the others reduce.
---
ranks: 3
expect:
  kind: [collective-differs, collective-order, rank-differs, collective]
  ranks: [1]
  frame: on_preempt
  says: [barrier, all_reduce]
  never: ["(?i)rank 1 (has )?(exited|ended)", "(?i)SIGSTOP"]
"""

import os
import signal
import threading
import time

import _kit
import torch

dist = _kit.gloo()


def on_preempt(number: int, frame: object) -> None:
    _kit.here()
    dist.barrier()  # all should save the same step
    torch.save(torch.ones(4), f"/tmp/preempted-{_kit.RANK}.pt")
    raise SystemExit(0)


def train_step(weights: torch.Tensor) -> None:
    time.sleep(0.2)  # forward and backward
    dist.all_reduce(weights)


signal.signal(signal.SIGUSR1, on_preempt)
if _kit.RANK == 1:
    threading.Timer(1.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
for _ in range(3600):
    train_step(torch.ones(16))
