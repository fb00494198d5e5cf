"""Rank 1 calls an all_gather where the others call an all_reduce.
---
ranks: 3
expect: {kind: [collective-order, collective-differs], ranks: [1], frame: metrics, says: [all_gather, all_reduce]}
"""

import _kit
import torch

dist = _kit.gloo()


def metrics() -> None:
    _kit.here()
    dist.all_gather([torch.ones(4) for _ in range(_kit.WORLD)], torch.ones(4))


if _kit.RANK == 1:
    metrics()
dist.all_reduce(torch.ones(4))
