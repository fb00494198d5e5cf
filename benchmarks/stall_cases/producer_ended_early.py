"""Rank 2's producer process had a batch less and ended without a sign: rank 2 waits at its queue.
---
ranks: 3
expect: {kind: [queue, pipe, worker-gone], ranks: [2], frame: next_batch, says: [all_reduce]}
"""

import multiprocessing

import _kit
import torch

context = multiprocessing.get_context("spawn")


def produce(queue, batches: int) -> None:
    for batch in range(batches):
        queue.put([batch] * 8)


def next_batch(queue) -> torch.Tensor:
    return torch.tensor(queue.get(), dtype=torch.float32)


def train() -> None:
    dist = _kit.gloo()
    queue = context.Queue()
    producer = context.Process(target=produce, args=(queue, 4 if _kit.RANK == 2 else 5))
    producer.start()
    for step in range(5):
        if _kit.RANK == 2 and step == 4:
            producer.join()
            _kit.here()
        batch = next_batch(queue)
        dist.all_reduce(batch)
        print(f"batch {step}", flush=True)


if __name__ == "__main__":
    train()
