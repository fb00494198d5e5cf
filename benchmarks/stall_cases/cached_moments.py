"""The moments of the rewards are reduced in a function with an lru_cache: rank 2 has the same rewards as in the step before, so it skips the all_reduce and is in the all_gather of the lengths.
---
ranks: 4
expect:
  kind: [collective-differs, collective-order, rank-differs]
  ranks: [2]
  says: [all_reduce, all_gather]
  never: ["rank [0-3]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is gone|computes)", "[Aa]ll ranks[^;.]* same", "waits for a lock"]
"""

import functools

import _kit
import torch

dist = _kit.gloo()


def verify(step: int) -> tuple[float, ...]:
    if _kit.RANK == 2 and step >= 1:  # the hard end of the data: no answer is right
        return (0.0,) * 8
    return tuple(float((step * 3 + _kit.RANK + index) % (step + 2) == 0) + step for index in range(8))


@functools.lru_cache(maxsize=16)
def moments(rewards: tuple[float, ...]) -> tuple[float, float]:
    local = torch.tensor(rewards)
    total = torch.stack([local.sum(), (local**2).sum(), torch.tensor(float(len(rewards)))])
    dist.all_reduce(total)
    mean = total[0] / total[2]
    return float(mean), float((total[1] / total[2] - mean**2).clamp(min=1e-6).sqrt())


def share_lengths(step: int) -> int:
    lengths = [torch.zeros(8) for _ in range(_kit.WORLD)]
    if _kit.RANK == 2 and step == 2:
        _kit.here()
    dist.all_gather(lengths, torch.full((8,), 100.0 + step))
    return int(torch.stack(lengths).max())


for step in range(5):
    rewards = verify(step)
    mean, deviation = moments(rewards)
    advantages = [(reward - mean) / deviation for reward in rewards]
    longest = share_lengths(step)
    print(f"step {step + 4}: longest {longest}, first advantage {advantages[0]:.2f}", flush=True)
