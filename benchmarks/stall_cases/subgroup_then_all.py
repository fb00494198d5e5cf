"""Rank 3 has no sample for its group's all_reduce and goes straight to the barrier of all.
---
ranks: 4
expect: {kind: [collective-order, collective-differs], ranks: [], says: [barrier, all_reduce, normalize], never: ["rank [0-3].{0,30}sleeps"]}
"""

import _kit
import torch

dist = _kit.gloo()
groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]


def normalize(samples):
    if samples:
        total = torch.tensor(float(sum(samples)))
        dist.all_reduce(total, group=groups[_kit.RANK // 2])


if _kit.RANK == 2:
    _kit.here()
normalize([] if _kit.RANK == 3 else [1.0, 2.0])
dist.barrier()
