"""Rank 1's shard has fewer prompts than a batch, drop_last leaves none, and the endless iterator over the loader starts it anew for ever.
---
ranks: 3
expect:
  kind: [busy, loader, collective-absent, rank-differs]
  ranks: [1]
  says: ["endless_prompts|[Dd]ata_?[Ll]oader", all_reduce]
  never: ["rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is gone)", "rank [02]( on [^ ]+)?( pid [0-9]+,?)? computes", "worker[^;.]* (hangs|killed|is gone)"]
"""

from collections.abc import Iterator

import _kit
import torch
from torch.utils.data import DataLoader, TensorDataset


def endless_prompts(loader: DataLoader) -> Iterator[torch.Tensor]:
    while True:
        for (batch,) in loader:
            yield batch


def shard(rows: torch.Tensor) -> torch.Tensor:
    keep = rows[rows % 7 != 0]  # too easy
    cut = [0, len(keep) // 2, len(keep) // 2 + 3, len(keep)]
    return keep[cut[_kit.RANK] : cut[_kit.RANK + 1]]


dist = _kit.gloo()
loader = DataLoader(TensorDataset(shard(torch.arange(100))), batch_size=8, shuffle=True, drop_last=True)
prompts = endless_prompts(loader)
if _kit.RANK == 1:
    _kit.here()
for _ in range(4, 1000):
    batch = next(prompts)
    dist.all_reduce(batch)
