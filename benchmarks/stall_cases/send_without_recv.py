"""Rank 0 sends to rank 3, which never receives: ranks 1 to 3 are in the barrier behind it.
---
ranks: 4
expect:
  kind: [collective-absent, collective-differs, collective-order, several, network, other, unknown]
  says: ["send", barrier]
  never: ["rank [0-3]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is gone|are gone)"]
"""

import _kit
import torch

dist = _kit.gloo()
FIRST, LAST = 0, _kit.WORLD  # off by one


def pass_activations(hidden: torch.Tensor) -> None:
    if _kit.RANK == FIRST:
        _kit.here()
        dist.send(hidden, dst=_kit.WORLD - 1)
    elif _kit.RANK == LAST:
        dist.recv(hidden, src=FIRST)


pass_activations(torch.ones(4096))
dist.barrier()
