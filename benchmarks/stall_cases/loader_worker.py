"""A worker of rank 0's data loader hangs in the data set.
---
ranks: 2
expect: {kind: [loader, sleep], says: ["data loader|__getitem__|fetch"], frame: fetch}
"""

import time

import _kit
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return fetch(index)


def fetch(index: int) -> int:
    if index == 5 and _kit.RANK == 0:
        _kit.here()
        time.sleep(3600)
    return index


dist = _kit.gloo()
for _ in DataLoader(Rows(), num_workers=1):
    dist.all_reduce(torch.ones(4))
