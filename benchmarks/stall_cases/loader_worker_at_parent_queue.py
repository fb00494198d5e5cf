"""The data set of rank 0's loader takes prompts from a queue that only the main process fills, which waits for the loader.
---
ranks: 2
expect:
  kind: [loader, queue]
  ranks: [0]
  says: ["__getitem__|__iter__|epoch", all_reduce]
  never: ["(?i)network", "sleeps", "computes"]
"""

import multiprocessing

import _kit
import torch
from torch.utils.data import DataLoader, IterableDataset

prompts = multiprocessing.get_context("fork").Queue()


class Prompts(IterableDataset):
    def __iter__(self):
        while True:
            yield prompts.get()


def epoch() -> None:
    batches = iter(DataLoader(Prompts(), batch_size=2, num_workers=1))
    for number in range(3):
        prompts.put(number)
    print(next(batches), flush=True)
    if _kit.RANK == 0:
        _kit.here()
        print(next(batches), flush=True)


dist = _kit.gloo()
epoch()
dist.all_reduce(torch.ones(4))
