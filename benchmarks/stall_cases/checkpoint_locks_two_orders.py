"""Rank 0 saves with the lock file of the weights, then that of the index; rank 1 prunes with the index's first: each waits for the other's file lock.
---
ranks: 3
expect:
  kind: [file-lock]
  ranks: [0, 1]
  says: ["save_weights", "prune_old|prune"]
  never: ["rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|computes|is gone)", "rank 2[^;.]* holds", "[Aa]ll ranks[^;.]* same"]
"""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator

import _kit
import torch

dist = _kit.gloo()


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def save_weights(folder: str, both: torch.Tensor) -> None:
    with locked(f"{folder}/weights.lock"):
        torch.save(torch.rand(64), f"{folder}/step-4.pt")
        dist.recv(both, src=1)
        with locked(f"{folder}/index.lock"):
            open(f"{folder}/index", "a").write("step-4.pt\n")


def prune_old(folder: str, both: torch.Tensor) -> None:
    with locked(f"{folder}/index.lock"):
        dist.send(both, dst=0)
        _kit.here()
        with locked(f"{folder}/weights.lock"):
            os.unlink(f"{folder}/step-1.pt")


folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder, src=0)
if _kit.RANK < 2:
    (save_weights, prune_old)[_kit.RANK](folder[0], torch.ones(1))
dist.all_reduce(torch.ones(4))
