"""With NCCL rank 0 waits for its GPU while rank 1 computes on its CPU without end.
---
ranks: 2
gpus: 2
expect: {kind: [busy], ranks: [1], frame: tokenise, says: ["moves|uses the CPU"]}
"""

import _kit
import torch

dist = _kit.nccl()


def tokenise() -> None:
    number = 0
    while True:
        number += 1


if _kit.RANK == 1:
    _kit.here()
    tokenise()
loss = torch.ones(1, device="cuda")
dist.all_reduce(loss)
print(loss.item())
