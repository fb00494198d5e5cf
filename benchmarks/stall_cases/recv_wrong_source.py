"""Rank 0 receives from rank 2 what rank 1 sends; rank 2 is at the barrier behind it.
---
ranks: 3
expect:
  kind: [collective-order, collective-differs, collective-all, several]
  says: [recv, send, barrier]
  never: [SIGSTOP]
"""

import _kit
import torch

dist = _kit.gloo()


def receive_rollouts(source: int) -> torch.Tensor:
    rollouts = torch.empty(1 << 20)
    dist.recv(rollouts, src=source)
    return rollouts


def send_rollouts() -> None:
    dist.send(torch.rand(1 << 20), dst=0)


if _kit.RANK == 0:
    receive_rollouts(1)
    _kit.here()
    receive_rollouts(2)
elif _kit.RANK == 1:
    send_rollouts()
    send_rollouts()
dist.barrier()
