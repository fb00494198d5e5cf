"""Rank 1 gets SIGSTOP.
---
ranks: 3
act: stop
expect: {kind: [stopped], ranks: [1]}
"""

import os
import time

import _kit
import torch

dist = _kit.gloo()
if _kit.RANK == 1:
    _kit.here(os.getpid())
    time.sleep(2)
while True:
    dist.all_reduce(torch.ones(4))
    time.sleep(0.1)
