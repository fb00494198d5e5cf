"""The trainer holds the tokenizer's multiprocessing lock around next(); the data loader's worker takes it in collate.
---
ranks: 2
expect:
  kind: [lock, loader]
  ranks: [1]
  says: ['collate|next_batch']
  never: ['rank 0 .*loader', 'file']
"""

import multiprocessing

import _kit
import torch
from torch.utils.data import DataLoader

lock = multiprocessing.get_context("fork").Lock()


def collate(rows):
    with lock:
        return torch.tensor(rows)


def next_batch(batches, exclusive):
    if exclusive:
        with lock:
            rows = [next(batches) for _ in range(4)]
            return torch.cat(rows)
    return next(batches)


dist = _kit.gloo()
batches = iter(
    DataLoader(
        list(range(64)),
        4,
        num_workers=1,
        collate_fn=collate,
        prefetch_factor=1,
        multiprocessing_context="fork",
    )
)
for step in range(4):
    if step == 3:
        _kit.here()
    next_batch(batches, exclusive=_kit.RANK == 1 and step == 3)
dist.all_reduce(torch.ones(4))
