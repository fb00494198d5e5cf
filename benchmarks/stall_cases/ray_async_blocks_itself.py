"""An async actor waits with .result() for a coroutine of its own event loop, which therefore never runs.
---
ray: true
expect: {kind: [event-loop, future, lock, ray], frame: score, never: [SIGSTOP]}
"""

import asyncio

import _kit
import ray


@ray.remote
class Judge:
    async def verdict(self, answer: str) -> float:
        await asyncio.sleep(0.05)
        return float(len(answer))

    async def score_async(self, answer: str) -> float:
        return await self.verdict(answer)

    async def score(self, answer: str) -> float:
        loop = asyncio.get_running_loop()
        return asyncio.run_coroutine_threadsafe(self.verdict(answer), loop).result()


def rewards(method) -> list:
    return ray.get([method.remote("x" * n) for n in range(4)])


ray.init()
judge = Judge.remote()
for step in range(1, 4):
    print(f"step {step}", rewards(judge.score_async), flush=True)
_kit.here()
rewards(judge.score)
