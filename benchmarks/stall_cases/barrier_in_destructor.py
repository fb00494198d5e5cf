"""Rank 1 swallows an error of its step, and the trainer's destructor runs into a barrier; the others reduce.
---
ranks: 3
expect: {kind: [collective-order, collective-differs], ranks: [1], frame: __del__, says: [barrier, all_reduce]}
"""

import _kit
import torch

dist = _kit.gloo()


class Trainer:
    def step(self, number: int) -> None:
        if number == 2 and _kit.RANK == 1:
            raise ValueError("no answer in the batch")
        dist.all_reduce(torch.ones(8))

    def __del__(self) -> None:
        if _kit.RANK == 1:
            _kit.here()
        dist.barrier()


def train() -> None:
    trainer = Trainer()
    for number in range(10):
        trainer.step(number)


try:
    train()
except ValueError as error:
    print(f"skipped: {error}", flush=True)
