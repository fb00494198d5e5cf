"""An aborted generation is counted out twice, by abort() and by its own finally: the count of generations in flight goes to -1, and the weight update waits on the condition until it is exactly nought.
---
expect:
  kind: [event-loop, lock]
  frame: update_weights
  says: ["update_weights|wait_for"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)network", "(?i)socket", "(?i)child process"]
"""

import asyncio

import _kit


class Engine:
    def __init__(self) -> None:
        self.in_flight = 0
        self.version = 0
        self.changed = asyncio.Condition()
        self.running: dict[int, asyncio.Task] = {}

    async def count(self, by: int) -> None:
        async with self.changed:
            self.in_flight += by
            self.changed.notify_all()

    async def generate(self, request: int, tokens: int) -> int:
        await self.count(1)
        try:
            for _ in range(tokens):
                await asyncio.sleep(0.01)
            return tokens
        finally:
            await self.count(-1)

    def submit(self, request: int, tokens: int) -> asyncio.Task:
        self.running[request] = asyncio.create_task(self.generate(request, tokens))
        return self.running[request]

    async def abort(self, request: int) -> None:
        self.running.pop(request).cancel()
        await self.count(-1)

    async def update_weights(self, version: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.in_flight == 0)
            self.version = version


async def main() -> None:
    engine = Engine()
    tasks = [engine.submit(request, tokens) for request, tokens in enumerate((10, 20, 10_000))]
    await asyncio.gather(*tasks[:2])
    await engine.abort(2)  # too long: enough answers are there
    await asyncio.wait(tasks)
    _kit.here()
    await engine.update_weights(1)


_kit.steps()
asyncio.run(main())
