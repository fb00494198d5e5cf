"""Ranks swap half of their replay with the partner (rank + world // 2) % world, which is mutual only if the world is even: of three ranks each sends to the next one and waits to receive from that one too.
---
ranks: 3
expect:
  kind: [collective-all, collective-differs, collective-order, rank-differs, several, waits, network, other]
  says: ["recv", "swap"]
  never: ["rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is gone|has ended|computes)", "all_reduce[^;.]* waits", "(?i)rendezvous"]
"""

import _kit
import torch

dist = _kit.gloo()


def swap(rows: torch.Tensor) -> torch.Tensor:
    partner = (_kit.RANK + _kit.WORLD // 2) % _kit.WORLD
    sent = dist.isend(rows, partner)
    theirs = torch.empty_like(rows)
    if _kit.RANK == 0:
        _kit.here()
    dist.recv(theirs, partner)
    sent.wait()
    return theirs


replay = torch.rand(64, 16)
replay[:32] = swap(replay[:32].contiguous())
dist.all_reduce(replay.mean())
