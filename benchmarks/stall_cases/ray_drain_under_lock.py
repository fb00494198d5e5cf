"""An async engine actor waits in load() for the end of the running generations with its lock held; a generation takes that same lock to count itself out: both wait, and the driver for load().
---
ray: true
expect: {kind: [event-loop, lock, ray, waits], says: ["Engine|load|generate"], never: ["(?i)computes", "resource", "(?i)pending", "network", "(?i)sleeps", "(?i)is gone|is dead"]}
"""

import asyncio
import time

import _kit
import ray


@ray.remote(num_cpus=0)
class Engine:
    def __init__(self) -> None:
        self.lock, self.drained = asyncio.Lock(), asyncio.Event()
        self.running = self.version = 0

    async def generate(self, prompt: str) -> str:
        async with self.lock:
            self.running += 1
            self.drained.clear()
        await asyncio.sleep(2)  # decodes
        async with self.lock:
            self.running -= 1
            if self.running == 0:
                self.drained.set()
        return prompt.upper()

    async def load(self, version: int) -> int:
        async with self.lock:
            if self.running:
                await self.drained.wait()
            self.version = version
        return version


ray.init()
engine = Engine.remote()
print(ray.get(engine.generate.remote("two and two")), ray.get(engine.load.remote(1)), flush=True)
_kit.steps()
answers = [engine.generate.remote(f"prompt {n}") for n in range(3)]
time.sleep(1)
loaded = engine.load.remote(2)
time.sleep(3)
_kit.here()
ray.get(loaded)
