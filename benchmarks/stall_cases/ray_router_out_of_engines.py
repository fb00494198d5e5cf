"""Both engines die of an answer that is too long, and the router never puts one back into its queue of free engines: the next prompt waits there for ever.
---
ray: true
expect:
  kind: [event-loop, queue, ray, ray-actor-dead]
  says: ["Router|generate"]
  never: ["(?i)computes", "(?i)sleeps", "(?i)no node", "Router[^;.]* (is dead|has died)"]
"""

import asyncio
import os

import _kit
import ray
from ray.exceptions import RayActorError


@ray.remote(num_cpus=0)
class Engine:
    def answer(self, prompt: str) -> str:
        if len(prompt) > 1000:
            os._exit(1)  # as an assertion on the device does
        return prompt.upper()


@ray.remote(num_cpus=0)
class Router:
    def __init__(self, engines: list) -> None:
        self.free: asyncio.Queue = asyncio.Queue()
        for engine in engines:
            self.free.put_nowait(engine)

    async def generate(self, prompt: str) -> str:
        engine = await self.free.get()
        answer = await engine.answer.remote(prompt)
        self.free.put_nowait(engine)
        return answer


def generate_or_empty(router: ray.actor.ActorHandle, prompt: str) -> str:
    try:
        return ray.get(router.generate.remote(prompt))
    except RayActorError:  # counts as an empty answer
        return ""


ray.init()
router = Router.remote([Engine.remote(), Engine.remote()])
for step in range(1, 4):
    print(f"step {step} {generate_or_empty(router, 'why')}", flush=True)
for prompt in ("long " * 400, "longer " * 400):
    print(f"answer {generate_or_empty(router, prompt)!r}", flush=True)
_kit.here()
print(generate_or_empty(router, "why"), flush=True)
