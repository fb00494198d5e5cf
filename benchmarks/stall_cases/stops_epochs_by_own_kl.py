"""Rank 2 leaves its PPO epochs early, as its own KL is over the limit: it already takes part in the weight sync while the others reduce gradients.
---
ranks: 4
expect:
  kind: [collective-differs, collective-order, collective-absent, rank-differs]
  ranks: [2]
  says: [broadcast, all_reduce]
  never: ["rank [0-3]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|computes|is gone)", "[Aa]ll ranks[^;.]* same"]
"""

import _kit
import torch

dist = _kit.gloo()
policy = torch.nn.Linear(32, 8)


def approximate_kl(epoch: int) -> float:
    return 0.004 * (epoch + 1) * (4 if _kit.RANK == 2 else 1)


def update_policy(target_kl: float = 0.02) -> None:
    for epoch in range(4):
        policy.zero_grad()
        policy(torch.rand(4, 32)).pow(2).mean().backward()
        for parameter in policy.parameters():
            dist.all_reduce(parameter.grad)
        if approximate_kl(epoch) > 1.5 * target_kl:
            print(f"early stop in epoch {epoch}", flush=True)
            return


def sync_weights() -> None:
    if _kit.RANK == 2:
        _kit.here()
    for parameter in policy.parameters():
        dist.broadcast(parameter.data, src=0)


update_policy()
sync_weights()
print("step 4", flush=True)
dist.barrier()
