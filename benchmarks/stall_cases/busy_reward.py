"""Rank 1 computes without end in a reward while the other waits.
---
ranks: 2
expect: {kind: [busy], ranks: [1], says: [reward, all_reduce, "moves|uses the CPU"]}
"""

import _kit
import torch

dist = _kit.gloo()


def reward() -> None:
    number = 0
    while True:
        number += 1


if _kit.RANK == 1:
    _kit.here()
    reward()
dist.all_reduce(torch.ones(4))
