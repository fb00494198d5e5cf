"""Rank 1 reduces a tensor of another size.
---
ranks: 4
expect: {kind: [collective-differs], ranks: [1], says: [".*8.*"]}
"""

import _kit
import torch

dist = _kit.gloo()
_kit.here()
for step in range(6):
    dist.all_reduce(torch.ones(8 if _kit.RANK == 1 and step == 1 else 4))
