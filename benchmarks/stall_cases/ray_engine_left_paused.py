"""The driver pauses the engine for the new weights; the load fails, the error is logged, and nobody resumes it: the next generation waits in the engine for its event.
---
ray: true
expect:
  kind: [event-loop, ray]
  says: ["generate"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)no node|never be scheduled", "(?i)actor[^.;]* (is dead|died|was killed)"]
"""

import asyncio
import time
from typing import Any

import _kit
import ray


@ray.remote(num_cpus=0)
class Engine:
    def __init__(self) -> None:
        self.running, self.shapes = asyncio.Event(), {"embed": (8, 4), "head": (4, 8)}
        self.running.set()

    async def pause(self) -> None:
        self.running.clear()

    async def resume(self) -> None:
        self.running.set()

    async def load_weights(self, shapes: dict[str, tuple[int, int]]) -> None:
        if shapes != self.shapes:
            raise ValueError(f"shapes differ: {shapes}")

    async def generate(self, prompts: list[str]) -> list[str]:
        await self.running.wait()
        return [prompt + " 4" for prompt in prompts]


def sync_weights(engine: Any, shapes: dict[str, tuple[int, int]]) -> None:
    try:
        ray.get(engine.pause.remote())
        ray.get(engine.load_weights.remote(shapes))
        ray.get(engine.resume.remote())
    except ValueError as error:
        print(f"old weights are kept: {error}", flush=True)


ray.init()
_kit.steps()
engine = Engine.remote()
sync_weights(engine, {"embed": (8, 4), "head": (4, 8)})
print(ray.get(engine.generate.remote(["2 + 2 ="])), flush=True)
sync_weights(engine, {"embed": (8, 4), "head": (4, 16)})
answers = engine.generate.remote(["3 + 3 ="])
time.sleep(3)
_kit.here()
ray.get(answers)
