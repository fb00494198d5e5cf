"""Rank 1 rebuilds its cache with the index's file lock held and reads the rows through a data loader, whose worker asks for the same lock.
---
ranks: 2
expect:
  kind: [loader, file-lock, queue]
  ranks: [1]
  says: ["lock", all_reduce]
  never: ["rank [01]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|computes|is gone)", "worker[^;.]* (killed|is gone)"]
"""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator

import _kit
import torch
from torch.utils.data import DataLoader, Dataset

INDEX = os.path.join(tempfile.mkdtemp(), "index.lock")


@contextlib.contextmanager
def index_lock() -> Iterator[None]:
    with open(INDEX, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Prompts(Dataset):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, row: int) -> torch.Tensor:
        with index_lock():  # no one may write the index while a row is read
            return torch.full((16,), row)


def rebuild_cache() -> int:
    with index_lock():
        _kit.here()
        return sum(len(batch) for batch in DataLoader(Prompts(), batch_size=8, num_workers=1))


dist = _kit.gloo()
if _kit.RANK == 1:  # its index was written by an older version
    rebuild_cache()
for batch in DataLoader(Prompts(), batch_size=8, num_workers=1):
    dist.all_reduce(batch)
