"""Rank 1 opens its cache's lock file a second time and locks it again: flock waits for its own process.
---
ranks: 2
expect: {kind: [file-lock, rank-differs], ranks: [1], frame: save, says: ["all_reduce", "itself"], never: ["held by rank 0", "no process"]}
"""

import fcntl
import os

import _kit
import torch

PATH = os.path.join(os.environ["JOBSPEC_ATTEMPT_DIR"], "cache.lock")


def save() -> None:
    with open(PATH, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


dist = _kit.gloo()
if _kit.RANK == 1:
    index = open(PATH, "a")
    fcntl.flock(index, fcntl.LOCK_EX)
    _kit.here()
    save()
dist.all_reduce(torch.ones(2))
