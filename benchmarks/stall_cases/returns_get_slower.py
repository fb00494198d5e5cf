"""Rank 1 never clears its history, and its returns are quadratic in it: each step is slower, the third has no end.
---
ranks: 2
expect: {kind: [busy], ranks: [1], frame: returns, says: [all_reduce]}
"""

import _kit
import torch

dist = _kit.gloo()
history: list[float] = []


def returns(rewards: list[float], discount: float = 0.99) -> float:
    total = 0.0
    for start in range(len(rewards)):
        value = 0.0
        for reward in rewards[start:]:
            value = value * discount + reward
        total += value
    return total


for step, new in enumerate([60, 3_600, 400_000, 400_000], start=4):
    if _kit.RANK == 1:
        history += [1.0] * new
    else:
        history = [1.0] * 60
    if step == 6 and _kit.RANK == 1:
        _kit.here()
    mean = torch.tensor(returns(history) / len(history))
    dist.all_reduce(mean)
    print(f"step {step}", flush=True)
