"""The data loader's worker of rank 1 filters by length, and no prompt of its shard is short enough: it loops for ever.
---
ranks: 2
expect: {kind: [busy, loader, rank-differs], ranks: [1], says: ["__iter__|keep"], never: ["is stopped", "died"]}
"""

import _kit
import torch
from torch.utils.data import DataLoader, IterableDataset


class Prompts(IterableDataset):
    def __iter__(self):
        for _ in range(3):
            yield torch.ones(4)
        if _kit.RANK == 0:
            while True:
                yield torch.ones(4)
        _kit.here()
        while True:
            for length in range(600, 2000):
                if length < 512:
                    yield torch.ones(length)


dist = _kit.gloo()
for batch in DataLoader(Prompts(), batch_size=1, num_workers=1):
    dist.all_reduce(batch)
