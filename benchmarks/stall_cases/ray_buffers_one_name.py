"""The buffers for training and for evaluation are made with get_if_exists and the same default name, so they are one actor: the evaluation takes the rollouts of the training, and the driver waits in take() for a whole batch.
---
ray: true
expect:
  kind: [event-loop, lock, queue, ray, waits]
  frame: take
  says: ["take|RolloutBuffer"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)resource", "(?i)(actor|worker)[^.;]* (died|is dead|is gone)"]
"""

import asyncio
import time

import _kit
import ray


@ray.remote(num_cpus=0)
class RolloutBuffer:
    def __init__(self) -> None:
        self.rows: list[dict] = []
        self.changed = asyncio.Condition()

    async def put(self, rows: list[dict]) -> None:
        async with self.changed:
            self.rows += rows
            self.changed.notify_all()

    async def take(self, count: int) -> list[dict]:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.rows) >= count)
            taken, self.rows = self.rows[:count], self.rows[count:]
            return taken


def make_buffer(purpose: str, name: str = "rollouts"):
    return RolloutBuffer.options(name=name, get_if_exists=True).remote()


@ray.remote(num_cpus=0)
def rollout(buffer, seed: int) -> None:
    ray.get(buffer.put.remote([{"seed": seed, "reward": seed % 2}] * 4))


ray.init()
train, evaluation = make_buffer("train"), make_buffer("eval")
_kit.steps()
ray.get([rollout.remote(train, seed) for seed in (1, 2)])
ray.get(rollout.remote(evaluation, 100))
scores = [row["reward"] for _ in range(2) for row in ray.get(evaluation.take.remote(4))]
batch = train.take.remote(8)
time.sleep(3)
_kit.here()
ray.get(batch)
