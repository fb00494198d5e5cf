"""Rank 1's step fails at its full metrics queue, behind the all_reduce, and is tried again from the start: it reduces a second time, while the others gather the lengths of the next rollouts.
---
ranks: 3
expect:
  kind: [collective-differs, collective-order]
  ranks: [1]
  says: [all_reduce, all_gather]
  never: ["rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? sleeps", "[Aa]ll ranks[^;.]* same", "(?i)computes"]
"""

import queue
from collections.abc import Callable

import _kit
import torch

metrics: queue.Queue[float] = queue.Queue(4)


def with_retries(step: Callable[[], None], tries: int = 3) -> None:
    for left in reversed(range(tries)):
        try:
            step()
            return
        except queue.Full:
            if not left:
                raise
            metrics.get_nowait()  # the oldest is given up


def train_step() -> None:
    gradient = torch.ones(1024)
    dist.all_reduce(gradient)
    metrics.put_nowait(float(gradient.mean()))


def gather_lengths() -> list[torch.Tensor]:
    lengths = [torch.zeros(8) for _ in range(_kit.WORLD)]
    dist.all_gather(lengths, torch.full((8,), 512.0))
    return lengths


dist = _kit.gloo()
if _kit.RANK == 1:
    for _ in range(4):  # its uploader is behind
        metrics.put(0.0)
    _kit.here()
with_retries(train_step)
gather_lengths()
dist.barrier()
