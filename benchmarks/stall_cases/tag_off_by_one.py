"""Trainer rank 0 sends its weights with the version as tag; engine rank 1 has counted its first load too and receives with the next tag: the send and the recv never meet.
---
ranks: 3
expect:
  kind: [rank-differs, collective-absent, collective-differs, collective-order, network, other]
  ranks: [0, 1]
  says: ["send|push_weights", "recv|pull_weights"]
  never: ["rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|computes|is gone)", "[Aa]ll ranks[^;.]* same", "rank 2( on [^ ]+)?( pid [0-9]+,?)? (has not come|does not come)"]
"""

import _kit
import torch

dist = _kit.gloo()


class Engine:
    def __init__(self) -> None:
        self.version, self.weights = 0, torch.zeros(1 << 16)
        self.load_from_disk()

    def load_from_disk(self) -> None:
        self.weights.fill_(1)
        self.version += 1

    def pull_weights(self) -> None:
        self.version += 1
        _kit.here()
        dist.recv(self.weights, src=0, tag=self.version)


class Trainer:
    def __init__(self) -> None:
        self.version, self.weights = 0, torch.ones(1 << 16)

    def push_weights(self) -> None:
        self.version += 1
        dist.send(self.weights, dst=1, tag=self.version)


if _kit.RANK == 0:
    Trainer().push_weights()
elif _kit.RANK == 1:
    Engine().pull_weights()
dist.barrier()  # rank 2 evaluates with what rank 1 serves
