"""All ranks reduce by one helper, but rank 2 skips the update of a short batch and is in the helper for its metrics; then each has another size or count.
---
ranks: 3
expect:
  kind: [collective-order, collective-differs]
  says: [mean_of_ranks, update, evaluate]
  never: ["sleeps", "computes", "(?i)queue", "stacks do not differ"]
"""

import _kit
import torch

dist = _kit.gloo()
others = dist.new_group([0, 1, 2])


def mean_of_ranks(value: torch.Tensor, group) -> torch.Tensor:
    dist.all_reduce(value, group=group)
    return value / _kit.WORLD


def update() -> None:
    mean_of_ranks(torch.ones(8), None)


def evaluate() -> None:
    mean_of_ranks(torch.ones(1), others)


if _kit.RANK != 2:
    update()
else:
    _kit.here()
evaluate()
dist.barrier()
