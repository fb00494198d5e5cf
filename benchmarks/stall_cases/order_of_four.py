"""Of four ranks rank 2 reduces before it broadcasts; the others broadcast first.
---
ranks: 4
expect:
  kind: [collective-order, collective-differs]
  ranks: [2]
  says: [all_reduce]
  never: ["rank [013]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is stopped|has not come|is gone|computes)",
          "in the same place"]
"""

import _kit
import torch

dist = _kit.gloo()
weights = torch.ones(1 << 12)


def send_weights() -> None:
    dist.broadcast(weights, src=0)
    dist.all_reduce(weights)


def norm_first() -> None:
    _kit.here()
    dist.all_reduce(weights)
    dist.broadcast(weights, src=0)


if _kit.RANK == 2:
    norm_first()
else:
    send_weights()
