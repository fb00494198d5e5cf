"""Each rank decides by its own clock whether an evaluation is due; rank 1 built its timer later, as it had the reference model to load, and goes on with the next step.
---
ranks: 3
expect:
  kind: [collective-differs, collective-order]
  ranks: [1]
  says: ["all_gather|gather_scores", "all_reduce|train_step"]
  never: ["rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? sleeps", "[Aa]ll ranks[^;.]* same"]
"""

import time

import _kit
import torch

dist = _kit.gloo()


class EvalTimer:
    def __init__(self, every: float) -> None:
        self.every, self.last = every, time.monotonic()

    def due(self) -> bool:
        if time.monotonic() - self.last < self.every:
            return False
        self.last = time.monotonic()
        return True


def load_reference() -> None:
    time.sleep(5)  # rank 1's node has a cold page cache


def train_step(step: int) -> None:
    time.sleep(1)
    if step == 2 and _kit.RANK == 1:
        _kit.here()
    dist.all_reduce(torch.ones(4))
    print(f"step {step + 3}", flush=True)


def gather_scores() -> float:
    scores = [torch.zeros(16) for _ in range(_kit.WORLD)]
    dist.all_gather(scores, torch.rand(16))
    return torch.stack(scores).mean().item()


if _kit.RANK == 1:
    load_reference()
timer = EvalTimer(every=3)
for step in range(1, 100):
    train_step(step)
    if timer.due():
        print(f"score {gather_scores():.2f}", flush=True)
