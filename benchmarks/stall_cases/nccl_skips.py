"""With NCCL rank 1 does not come to an all_reduce: it sleeps.
---
ranks: 2
gpus: 2
expect: {kind: [sleep], ranks: [1], frame: evaluate, says: ["all_?reduce|GPU"]}
"""

import time

import _kit
import torch

dist = _kit.nccl()


def evaluate() -> None:
    _kit.here()
    time.sleep(3600)


if _kit.RANK == 1:
    evaluate()
dist.all_reduce(torch.ones(4, device="cuda"))
torch.cuda.synchronize()
