"""Rank 0 says every second that it waits for rollouts, and makes no step.
---
ranks: 2
expect:
  kind: [sleep]
  ranks: [0]
  frame: fill_buffer
  says: [all_reduce]
  never: ["rank 1( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)"]
"""

import time

import _kit
import torch

dist = _kit.gloo()


def fill_buffer(need: int) -> list[int]:
    rollouts: list[int] = []
    _kit.here()
    while len(rollouts) < need:
        print(f"waiting for rollouts: {len(rollouts)}/{need}", flush=True)
        time.sleep(1.0)
    return rollouts


if _kit.RANK == 0:
    fill_buffer(64)
dist.all_reduce(torch.ones(4))
