"""The branch for truncated answers forgets `group=`: rank 1 reduces its length penalty over all four ranks, rank 0 waits for it in their tensor group, and ranks 2 and 3 are at the barrier.
---
ranks: 4
expect:
  kind: [collective-differs, collective-order, collective-absent, rank-differs]
  ranks: [1]
  says: [all_reduce, barrier]
  never: ["rank [0-3]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is gone|computes)", "[Aa]ll ranks[^;.]* same", "(?i)other size"]
"""

import _kit
import torch

dist = _kit.gloo()
LIMIT = 1024
tensor_groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
tensor_group = tensor_groups[_kit.RANK // 2]


def answer_lengths(step: int) -> torch.Tensor:
    """Tokens in this rank's half of each answer."""
    lengths = torch.tensor([210.0, 377.0, 145.0, 402.0]) + 10 * step
    if step == 2 and _kit.RANK == 1:
        lengths[2] = 1025.0
    return lengths


def length_penalty(lengths: torch.Tensor) -> torch.Tensor:
    over = (lengths - LIMIT).clamp(min=0)
    if over.any():
        penalty = 0.5 * over / LIMIT
        _kit.here()
        dist.all_reduce(penalty)
    else:
        penalty = torch.zeros_like(lengths)
        dist.all_reduce(penalty, group=tensor_group)
    return penalty


def train() -> None:
    for step in range(4):
        rewards = torch.ones(4) - length_penalty(answer_lengths(step))
        dist.barrier()
        dist.all_reduce(rewards)
        print(f"step {step + 4}", flush=True)


train()
