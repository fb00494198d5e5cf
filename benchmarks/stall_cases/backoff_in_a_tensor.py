"""Rank 1's engine client backs off: its wait, a tensor that doubles, has no upper bound, so it sleeps for hours while the others reduce.
---
ranks: 3
expect:
  kind: [sleep, rank-differs]
  ranks: [1]
  frame: back_off
  says: ['back_off']
  never: ['GPU', 'rank [02] .*sleeps']
"""

import time

import _kit
import torch


def back_off(delay):
    time.sleep(delay.item())


dist = _kit.gloo()
delay = torch.tensor(0.001)
if _kit.RANK == 1:
    for _ in range(30):
        delay = delay * 2
        if delay > 100:
            _kit.here()
        back_off(delay if delay < 0.2 or delay > 100 else torch.tensor(0.01))
dist.all_reduce(torch.ones(4))
