"""Rank 0 sends its weights with tag 1 and goes on; rank 1 receives with tag 2.
---
ranks: 2
expect:
  kind: [collective-order, rank-differs, collective-differs, collective-absent]
  says: ["load_weights|recv"]
  never: ["sleeps", "computes", "(?i)queue", "all of ranks"]
"""

import _kit
import torch

dist = _kit.gloo()


def load_weights() -> None:
    dist.recv(torch.ones(8), src=0, tag=2)


if _kit.RANK == 0:
    sent = dist.isend(torch.ones(8), dst=1, tag=1)
else:
    _kit.here()
    load_weights()
dist.all_reduce(torch.ones(4))
