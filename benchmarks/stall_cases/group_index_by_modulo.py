"""The tensor groups are [0, 1] and [2, 3], but each rank picks its own by rank % 2: ranks 1 and 2 pick one to which they do not belong, so their all_reduce does nothing, and they are at the barrier.
---
ranks: 4
expect:
  kind: [collective-absent, collective-differs, collective-order, rank-differs]
  ranks: [1, 2]
  says: [all_reduce, barrier]
  never: ["(?i)sleeps", "(?i)computes", "[Aa]ll ranks[^;.]* same"]
"""

import _kit
import torch

TENSOR = 2


class Mesh:
    def __init__(self) -> None:
        groups = [dist.new_group([first, first + 1]) for first in range(0, _kit.WORLD, TENSOR)]
        self.tensor = groups[_kit.RANK % TENSOR]


def reduce_logits(mesh: Mesh, logits: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(logits, group=mesh.tensor)
    return logits


dist = _kit.gloo()
mesh = Mesh()
if _kit.RANK == 1:
    _kit.here()
reduce_logits(mesh, torch.ones(1024))
dist.barrier()
