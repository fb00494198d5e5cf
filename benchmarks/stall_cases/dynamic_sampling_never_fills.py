"""Rank 2's prompts have become too easy: its dynamic sampling drops each group without a spread, for ever.
---
ranks: 3
expect:
  kind: [busy]
  ranks: [2]
  frame: fill_batch
  says: [all_reduce]
  never: ["(?i)rank 2 sleeps", "(?i)waits for a lock"]
"""

import _kit
import torch

torch.set_num_threads(1)
dist = _kit.gloo()


def fill_batch(difficulty: float, size: int = 4) -> torch.Tensor:
    groups: list[torch.Tensor] = []
    while len(groups) < size:
        rewards = (torch.rand(8) >= difficulty).float()
        if rewards.std() > 0:  # a group of equal rewards has no advantage
            groups.append(rewards)
    return torch.stack(groups)


if _kit.RANK == 2:
    _kit.here()
batch = fill_batch(0.0 if _kit.RANK == 2 else 0.5)
dist.all_reduce(batch)
