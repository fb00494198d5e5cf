"""Rank 2 does not come to an all_reduce: it sleeps in an evaluation.
---
ranks: 4
expect: {kind: [sleep], ranks: [2], frame: evaluate, says: [all_reduce, "ranks 0-1, 3"]}
"""

import time

import _kit
import torch

dist = _kit.gloo()


def evaluate() -> None:
    _kit.here()
    time.sleep(3600)


if _kit.RANK == 2:
    evaluate()
dist.all_reduce(torch.ones(4))
