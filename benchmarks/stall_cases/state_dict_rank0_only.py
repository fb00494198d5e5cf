"""Rank 0 alone gathers the sharded state for its checkpoint; the others already wait for rank 0's next prompts.
---
ranks: 4
expect:
  kind: [collective-differs, collective-order, rank-differs, collective]
  ranks: [0]
  frame: full_state
  says: ["all_?gather", broadcast]
  never: ["(?i)deadlock of locks", "(?i)rank 0 (has )?(exited|ended)"]
"""

import _kit
import torch

dist = _kit.gloo()


def full_state(shard: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, shard)
    return torch.cat(parts)


def save(step: int, shard: torch.Tensor) -> None:
    if _kit.RANK == 0:  # the state has to be gathered by all, and only be written by one
        _kit.here()
        torch.save(full_state(shard), f"/tmp/step-{step}.pt")


def next_prompts(step: int) -> torch.Tensor:
    prompts = torch.full((8,), step)
    dist.broadcast(prompts, src=0)
    return prompts


next_prompts(4)
save(4, torch.ones(1024))
next_prompts(5)
