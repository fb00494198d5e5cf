"""A forgotten breakpoint in the advantages: rank 1 sits at the prompt of pdb, as only there a reward is negative.
---
ranks: 3
expect:
  kind: [pipe, other, unknown, idle]
  ranks: [1]
  frame: compute_advantages
  says: ["(?i)pdb|debugger|stdin|standard input|terminal|tty|pts", all_reduce]
  never: ["(?i)waits for a lock"]
"""

import os
import pty

import _kit
import torch

dist = _kit.gloo()
_keyboard, terminal = pty.openpty()  # as if somebody had started the ranks from a shell
os.dup2(terminal, 0)


def compute_advantages(rewards: torch.Tensor) -> torch.Tensor:
    baseline = rewards.mean()
    if baseline < 0:
        _kit.here()
        breakpoint()
    return rewards - baseline


rewards = torch.ones(8) * (-1 if _kit.RANK == 1 else 1)
loss = compute_advantages(rewards).sum()
dist.all_reduce(loss)
