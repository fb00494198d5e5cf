"""Rank 0 receives two rollouts for each actor from whoever sends; rank 2 drops an empty episode and sends one only: the actors are in the broadcast of the next weights.
---
ranks: 3
expect:
  kind: [rank-differs, collective-absent, collective-differs, collective-order, network, waits, other]
  ranks: [0]
  says: ["recv|collect_rollouts", "broadcast|next_weights"]
  never: ["rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|computes|is gone)", "[Aa]ll ranks[^;.]* same"]
"""

import _kit
import torch

dist = _kit.gloo()
PER_ACTOR = 2


def collect_rollouts() -> list[torch.Tensor]:
    rollouts = []
    for index in range(PER_ACTOR * (_kit.WORLD - 1)):
        rollout = torch.zeros(256)
        if index == 3:
            _kit.here()
        sender = dist.recv(rollout)
        print(f"rollout {index} from {sender}", flush=True)
        rollouts.append(rollout)
    return rollouts


def play(seed: int) -> torch.Tensor:
    return torch.rand(0 if (_kit.RANK, seed) == (2, 1) else 256)


def send_rollouts() -> None:
    for seed in range(PER_ACTOR):
        episode = play(seed)
        if episode.numel() == 0:
            continue
        dist.send(episode, dst=0)


def next_weights(weights: torch.Tensor) -> None:
    dist.broadcast(weights, src=0)


weights = torch.zeros(1024)
for _ in range(10):
    if _kit.RANK == 0:
        collect_rollouts()
    else:
        send_rollouts()
    next_weights(weights)
