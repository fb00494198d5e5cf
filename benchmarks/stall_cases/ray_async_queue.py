"""An async actor waits at its asyncio queue for a rollout that no engine puts; the driver waits for the actor.
---
ray: true
expect:
  kind: [queue, event-loop, ray]
  frame: take_rollout
  says: ["take_rollout"]
  never: ["(?i)has not the resources", "(?i)is dead|died", "(?i)computes|sleeps"]
"""

import asyncio
import time

import _kit
import ray


@ray.remote(num_cpus=0)
class Buffer:
    def __init__(self) -> None:
        self.rollouts: asyncio.Queue[int] = asyncio.Queue()

    async def take_rollout(self) -> int:
        return await self.rollouts.get()


ray.init()
_kit.steps()
buffer = Buffer.remote()
rollout = buffer.take_rollout.remote()
time.sleep(3)
_kit.here()
ray.get(rollout)
