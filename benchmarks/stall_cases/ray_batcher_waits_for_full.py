"""An engine actor collects prompts until it has a batch of four, without a timeout: of ten prompts the last two wait in generate() for a batch that never gets full, and the driver for them.
---
ray: true
expect:
  kind: [event-loop, future, ray, waits, other]
  says: ["Engine|generate"]
  never: ["(?i)computes", "(?i)each other", "(?i)(is|has) (gone|died|dead)", "(?i)resources that"]
"""

import asyncio

import _kit
import ray


@ray.remote(num_cpus=0)
class Engine:
    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.waiting: list[tuple[str, asyncio.Future]] = []

    async def run_batch(self) -> None:
        batch, self.waiting = self.waiting, []
        await asyncio.sleep(0.2)
        for prompt, answer in batch:
            answer.set_result(prompt.upper())

    async def generate(self, prompt: str) -> str:
        answer = asyncio.get_running_loop().create_future()
        self.waiting.append((prompt, answer))
        if len(self.waiting) == self.batch_size:
            await self.run_batch()
        return await answer


ray.init()
_kit.steps()
engine = Engine.remote(4)
print(ray.get([engine.generate.remote(f"warm {index}") for index in range(8)]), flush=True)
rollouts = [engine.generate.remote(f"prompt {index}") for index in range(10)]
ray.wait(rollouts, num_returns=8)
_kit.here()
print(ray.get(rollouts))
