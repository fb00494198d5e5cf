"""Rank 0 alone evaluates with the model wrapped in DDP, whose forward broadcasts the buffers of its batch norm; the others are at the barrier behind the evaluation.
---
ranks: 3
expect:
  kind: [collective-differs, collective-order, collective-absent, rank-differs]
  ranks: [0]
  says: ["evaluate|forward|broadcast|_sync", "barrier"]
  never: ["(?i)sleeps", "[Aa]ll ranks[^;.]* same", "is gone", "(?i)network-half|half.open"]
"""

import _kit
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist = _kit.gloo()
policy = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)))
optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)


def train_step() -> None:
    optimizer.zero_grad()
    policy(torch.randn(16, 8)).pow(2).mean().backward()
    optimizer.step()


@torch.no_grad()
def evaluate() -> float:
    policy.eval()
    total = 0.0
    for _ in range(4):
        total += float(policy(torch.randn(16, 8)).mean())
    policy.train()
    return total / 4


for step in range(3):
    train_step()
    print(f"update {step}", flush=True)
if _kit.RANK == 0:
    _kit.here()
    print(f"eval {evaluate():.3f}", flush=True)
dist.barrier()
train_step()
