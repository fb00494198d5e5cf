"""Four generations wait for an asyncio.Event whose setter was cancelled by its timeout.
---
expect: {kind: [event-loop, future, idle, lock], ranks: [0], frame: generate}
"""

import asyncio

import _kit


class Rollout:
    def __init__(self) -> None:
        self.ready = asyncio.Event()

    async def load_weights(self, seconds: float) -> None:
        self.ready.clear()
        await asyncio.sleep(seconds)
        self.ready.set()

    async def generate(self, prompt: int) -> int:
        await self.ready.wait()
        await asyncio.sleep(0.05)
        return prompt + 1

    async def step(self, seconds: float) -> list:
        loading = asyncio.ensure_future(asyncio.wait_for(self.load_weights(seconds), timeout=1))
        await asyncio.sleep(0)
        answers = await asyncio.gather(*(self.generate(prompt) for prompt in range(4)))
        await loading
        return answers


async def main() -> None:
    rollout = Rollout()
    for step in range(1, 4):
        print(f"step {step}", await rollout.step(0.1), flush=True)
    _kit.here()
    await rollout.step(5)


asyncio.run(main())
