"""Both ranks hold themselves for the source of a broadcast: each sends, nobody receives.
---
ranks: 2
expect:
  kind: [collective-all, collective-differs, other, unknown]
  says: [broadcast]
  never: ["rank [01]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is gone|has not come|does not come|is missing)"]
"""

import _kit
import torch

dist = _kit.gloo()


def sync_weights(weights: torch.Tensor) -> None:
    source = _kit.RANK  # meant was the trainer's rank, the same on all
    if _kit.RANK == 0:
        _kit.here()
    dist.broadcast(weights, src=source)


sync_weights(torch.ones(1024))
