"""With DDP rank 2 has a batch less than the others: it is at the epoch's barrier while they are in backward.
---
ranks: 3
expect:
  kind: [collective-order, collective-differs]
  ranks: [2]
  frame: end_epoch
  says: [barrier, "backward|all_?reduce"]
"""

import _kit
import torch
from torch.nn.parallel import DistributedDataParallel

dist = _kit.gloo()
torch.set_num_threads(1)


def train_epoch(model: torch.nn.Module, batches: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(batches):
        optimizer.zero_grad()
        model(torch.rand(4, 16)).mean().backward()
        optimizer.step()


def end_epoch() -> None:
    if _kit.RANK == 2:
        _kit.here()
    dist.barrier()


model = DistributedDataParallel(torch.nn.Linear(16, 16))
train_epoch(model, 4 if _kit.RANK == 2 else 5)
end_epoch()
