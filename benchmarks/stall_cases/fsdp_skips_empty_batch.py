"""With FSDP rank 1 skips the forward of an empty batch and is at the barrier; the others gather parameters.
---
ranks: 2
expect: {kind: [collective-order, collective-differs, rank-differs, collective-absent], says: ["barrier"], never: ["computes", "sleeps"]}
"""

import _kit
import torch
from torch.distributed.fsdp import fully_shard

dist = _kit.gloo()
model = torch.nn.Linear(8, 8)
mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
fully_shard(model, mesh=mesh)


def train(batch: torch.Tensor) -> None:
    model(batch).sum().backward()


for step in range(4):
    rows = 0 if _kit.RANK == 1 and step == 2 else 4
    if rows:
        train(torch.ones(rows, 8))
    else:
        _kit.here()
        dist.barrier()
