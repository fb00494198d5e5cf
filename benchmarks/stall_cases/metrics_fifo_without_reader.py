"""Rank 0 opens the FIFO of a metrics collector that nobody has started: the open waits for a reader.
---
ranks: 2
expect:
  kind: [pipe]
  ranks: [0]
  says: [open_metrics, all_reduce]
  never: ["(?i)network", "sleeps", "computes", "(?i)queue"]
"""

import os
import tempfile

import _kit
import torch


def open_metrics(folder: str):
    path = os.path.join(folder, "metrics.fifo")
    os.mkfifo(path)
    return open(path, "w")


dist = _kit.gloo()
if _kit.RANK == 0:
    _kit.here()
    open_metrics(tempfile.mkdtemp()).write("step 4")
dist.all_reduce(torch.ones(4))
