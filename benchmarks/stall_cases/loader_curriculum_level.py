"""The data loader's worker asks for the next level of its curriculum, which the trainer sets after each batch; rank 1's level has six prompts, a batch eight: each waits for the other.
---
ranks: 2
expect:
  kind: [loader, queue, pipe, network, lock]
  ranks: [1]
  says: ["(?i)loader|__iter__|next_level|levels", "all_reduce"]
  never: ["rank 0( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)", "(?i)computes"]
"""

import multiprocessing
from collections.abc import Iterator
from typing import Any

import _kit
from torch.utils.data import DataLoader, IterableDataset

PROMPTS = {0: [8, 8, 8], 1: [8, 6, 8]}[_kit.RANK]


class Curriculum(IterableDataset):
    def __init__(self, levels: Any) -> None:
        self.levels = levels

    def next_level(self) -> int:
        return self.levels.get()

    def __iter__(self) -> Iterator[int]:
        while True:
            level = self.next_level()
            yield from range(PROMPTS[level])


dist = _kit.gloo()
levels = multiprocessing.get_context("fork").Queue()
loader = DataLoader(Curriculum(levels), batch_size=8, num_workers=1, multiprocessing_context="fork")
batches = iter(loader)
for level in range(3):
    levels.put(level)
    if level == 1 and _kit.RANK == 1:
        _kit.here()
    batch = next(batches)
    dist.all_reduce(batch.float().mean())
    print(f"level {level}", flush=True)
