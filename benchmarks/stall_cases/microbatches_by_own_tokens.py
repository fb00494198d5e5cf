"""Each rank cuts its batch into microbatches by a token budget and does not agree on their number: rank 1 has longer answers and so one more, whose gradient it reduces, while the others are at the barrier before the weight sync.
---
ranks: 3
expect:
  kind: [collective-differs, collective-order]
  ranks: [1]
  says: ["barrier", "all_reduce"]
  never: ["[Aa]ll ranks[^;.]* same", "(?i)sleeps", "(?i)is gone", "(?i)computes"]
"""

import _kit
import torch

TOKENS_PER_MICROBATCH = 4096
dist = _kit.gloo()
weight = torch.zeros(32)


def microbatches(lengths: list[int]) -> list[list[int]]:
    packs: list[list[int]] = [[]]
    for length in lengths:
        if packs[-1] and sum(packs[-1]) + length > TOKENS_PER_MICROBATCH:
            packs.append([])
        packs[-1].append(length)
    return packs


def backward(pack: list[int]) -> torch.Tensor:
    gradient = torch.full((32,), float(sum(pack)))
    dist.all_reduce(gradient)
    return gradient / _kit.WORLD


def update_policy(lengths: list[int]) -> None:
    packs = microbatches(lengths)
    for number, pack in enumerate(packs):
        if _kit.RANK == 1 and number == 2:
            _kit.here()
        weight.sub_(1e-6 * backward(pack))


def sync_weights() -> None:
    dist.barrier()
    dist.broadcast(weight, src=0)


update_policy([2100, 2300, 2500, 1200] if _kit.RANK == 1 else [1500, 1900, 2000, 1700])
sync_weights()
