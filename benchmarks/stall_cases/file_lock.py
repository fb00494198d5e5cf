"""Rank 1 waits for a lock on a file that another process holds.
---
ranks: 2
expect: {kind: [file-lock], ranks: [1], frame: build}
"""

import fcntl
import os
import time

import _kit
import torch

dist = _kit.gloo()
path = os.environ["JOBSPEC_SCRATCH"] + "/build.lock"


def build() -> None:
    with open(path, "w") as file:
        _kit.here()
        fcntl.flock(file, fcntl.LOCK_EX)


if _kit.RANK == 0:
    held = open(path, "w")
    fcntl.flock(held, fcntl.LOCK_EX)
    dist.barrier()
else:
    dist.barrier()
    time.sleep(0.5)
    build()
dist.all_reduce(torch.ones(4))
