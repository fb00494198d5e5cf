"""A publisher takes the lock of a lock actor and fails before it gives it back; the driver logs the error, and the next publisher waits in acquire().
---
ray: true
expect:
  kind: [event-loop, lock, ray]
  says: ["acquire|publish|WeightLock"]
  never: ["(?i)sleeps", "(?i)computes", "network", "(?i)actor[^.;]* (died|is dead|is gone)"]
"""

import asyncio

import _kit
import ray


@ray.remote(num_cpus=0)
class WeightLock:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()

    async def acquire(self) -> None:
        await self.lock.acquire()

    async def release(self) -> None:
        self.lock.release()


@ray.remote(num_cpus=0)
def publish(lock: ray.actor.ActorHandle, weights: dict[str, list[float]]) -> float:
    ray.get(lock.acquire.remote())
    norm = sum(value * value for value in weights["lm_head"])
    ray.get(lock.release.remote())
    return norm


ray.init()
_kit.steps()
lock = WeightLock.remote()
for version, weights in enumerate([{"lm_head": [1.0]}, {"lm_head.weight": [1.0]}, {"lm_head": [2.0]}]):
    if version == 2:
        _kit.here()
    try:
        print(version, ray.get(publish.remote(lock, weights)), flush=True)
    except ray.exceptions.RayTaskError as error:
        print(f"version {version} is left out: {error.cause!r}", flush=True)
