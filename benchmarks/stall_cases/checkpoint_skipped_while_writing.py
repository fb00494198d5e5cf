"""Each rank looks for itself whether its last asynchronous checkpoint is still being written and if so leaves out the new one: rank 1's disk is slow, so it goes on to the loss while the others gather the plan of the new checkpoint.
---
ranks: 3
expect:
  kind: [collective-differs, collective-order, collective-absent]
  ranks: [1]
  says: ["all_gather|save|gather_object", "all_reduce|log_loss"]
  never: ["rank [0-2]( on [^ ]+)?( pid [0-9]+,?)? (is gone|has ended|computes)", "[Aa]ll ranks[^;.]* same", "disk does not answer"]
"""

import threading
import time

import _kit
import torch

dist = _kit.gloo()


class Checkpointer:
    def __init__(self) -> None:
        self.writer: threading.Thread | None = None

    def write(self, plan: list[str]) -> None:
        time.sleep(3 if _kit.RANK == 1 else 0.1)  # one node's scratch disk is slow

    def save(self, step: int) -> None:
        if self.writer is not None and self.writer.is_alive():
            print(f"checkpoint {step} is left out, the last one is still being written", flush=True)
            return
        plan: list[str | None] = [None] * _kit.WORLD
        dist.all_gather_object(plan, f"step-{step}-shard-{_kit.RANK}")
        self.writer = threading.Thread(target=self.write, args=(plan,), name="checkpoint-writer")
        self.writer.start()


def log_loss(step: int) -> None:
    if _kit.RANK == 1 and step == 5:
        _kit.here()
    loss = torch.tensor(0.5)
    dist.all_reduce(loss)
    print(f"step {step} loss {loss / _kit.WORLD:.3f}", flush=True)


checkpointer = Checkpointer()
for step in range(4, 9):
    checkpointer.save(step)
    log_loss(step)
    time.sleep(0.5)
