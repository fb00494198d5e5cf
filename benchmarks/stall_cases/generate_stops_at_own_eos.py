"""The policy stays sharded while it generates: each token gathers a layer; rank 2's answers all end early, it leaves the loop at its own end and sums its rewards, while the others gather for their next token.
---
ranks: 4
expect:
  kind: [collective-differs, collective-order]
  ranks: [2]
  says: ["all_gather", "all_reduce"]
  never: ["[Aa]ll ranks[^;.]* same", "(?i)sleeps", "(?i)is gone", "(?i)computes"]
"""

import _kit
import torch

EOS = 0
dist = _kit.gloo()
shard = torch.full((64,), float(_kit.RANK))


def gather_layer() -> torch.Tensor:
    parts = [torch.empty_like(shard) for _ in range(_kit.WORLD)]
    dist.all_gather(parts, shard)
    return torch.cat(parts)


def sample(position: int, ends: list[int]) -> list[int]:
    gather_layer()
    return [EOS if position >= end else 17 + position for end in ends]


def generate(ends: list[int], limit: int) -> list[list[int]]:
    answers: list[list[int]] = [[] for _ in ends]
    done = [False] * len(ends)
    for position in range(limit):
        for row, token in enumerate(sample(position, ends)):
            if not done[row]:
                answers[row].append(token)
                done[row] = token == EOS
        if all(done):  # ends at this rank's own end: synced_gpus is off
            break
    return answers


def sum_rewards(answers: list[list[int]]) -> float:
    total = torch.tensor([float(sum(len(answer) for answer in answers))])
    if _kit.RANK == 2:
        _kit.here()
    dist.all_reduce(total)
    return float(total)


prompts_end = [3, 5, 4] if _kit.RANK == 2 else [8, 12, 10]
answers = generate(prompts_end, limit=12)
sum_rewards(answers)
