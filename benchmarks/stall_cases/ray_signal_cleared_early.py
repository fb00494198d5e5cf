"""The driver signals new weights through a signal actor, which sets its event and clears it at once: engine 1 was still decoding, comes too late, and waits for a signal that has passed; the driver waits for engine 1.
---
ray: true
expect:
  kind: [event-loop, ray, waits, other]
  says: ["WeightSignal|wait_for_weights|next_policy|Engine"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)no node|resources? (that|which)", "(?i)actor[^;.]* (is dead|has died|was killed)"]
"""

import asyncio
import time

import _kit
import ray


@ray.remote(num_cpus=0)
class WeightSignal:
    def __init__(self) -> None:
        self.event = asyncio.Event()

    async def wait_for_weights(self) -> None:
        await self.event.wait()

    async def send(self) -> None:
        self.event.set()
        self.event.clear()  # ready for the next update


@ray.remote(num_cpus=0)
class Engine:
    def __init__(self, signal: ray.actor.ActorHandle, tokens: int) -> None:
        self.signal, self.tokens = signal, tokens

    def next_policy(self) -> int:
        for _ in range(self.tokens):
            time.sleep(0.1)
        ray.get(self.signal.wait_for_weights.remote())
        return self.tokens

    def ready(self) -> bool:
        return True


ray.init()
signal = WeightSignal.remote()
engines = [Engine.remote(signal, tokens) for tokens in (2, 60)]
ray.get([engine.ready.remote() for engine in engines])
_kit.steps()
results = [engine.next_policy.remote() for engine in engines]
time.sleep(3)
ray.get(signal.send.remote())
ray.get(results[0])
time.sleep(5)
_kit.here()
ray.get(results)
