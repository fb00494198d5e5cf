"""Rank 1 has no group with an advantage, skips the barrier of the update, and is one collective further.
---
ranks: 4
expect:
  kind: [collective-differs, collective-order]
  ranks: [1]
  says: [barrier, all_reduce]
  never: ["rank [0-3]( on [^ ]+)?( pid [0-9]+,?)? sleeps", "[Aa]ll ranks[^;.]* same"]
"""

import _kit
import torch

dist = _kit.gloo()


def update(rewards: torch.Tensor) -> None:
    advantages = rewards - rewards.mean()
    if not advantages.abs().max() > 0:  # every answer of the group was right: nothing to learn
        return
    dist.barrier()


def log_loss() -> None:
    if _kit.RANK == 1:
        _kit.here()
    dist.all_reduce(torch.ones(4))


update(torch.ones(8) if _kit.RANK == 1 else torch.arange(8.0))
log_loss()
