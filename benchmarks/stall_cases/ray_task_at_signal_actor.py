"""A rollout task waits at an async gate actor for the policy's version 4; the driver waits for the task before it opens the gate.
---
ray: true
expect:
  kind: [event-loop, ray, lock, ray-cycle]
  says: ["rollout|Gate"]
  never: ["sleeps", "computes", "(?i)resources"]
"""

import asyncio

import _kit
import ray


@ray.remote(num_cpus=0)
class Gate:
    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def wait_open(self) -> None:
        await self.opened.wait()

    async def open(self) -> None:
        self.opened.set()


@ray.remote(num_cpus=0.5)
def rollout(gate) -> int:
    ray.get(gate.wait_open.remote())
    return 4


ray.init()
_kit.steps()
gate = Gate.remote()
_kit.here()
print(ray.get(rollout.remote(gate)), flush=True)
gate.open.remote()
