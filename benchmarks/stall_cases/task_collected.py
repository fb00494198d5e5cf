"""Nobody keeps the tasks of the samples, and the engine holds their futures weakly: the gc.collect() of the update destroys them while they are pending, and main awaits their answers at its queue.
---
expect:
  kind: [event-loop, queue]
  says: ["collect"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)network|socket", "waits for a lock", "(?i)deadlock"]
"""

import asyncio
import gc
import weakref

import _kit


class Engine:
    def __init__(self) -> None:
        self.pending: weakref.WeakValueDictionary = (
            weakref.WeakValueDictionary()
        )  # who gives up leaves nothing here
        self.arrived = asyncio.Event()

    def request(self, number: int) -> asyncio.Future:
        future = asyncio.get_running_loop().create_future()
        self.pending[number] = future
        self.arrived.set()
        return future

    async def serve(self) -> None:
        while True:
            await self.arrived.wait()
            self.arrived.clear()
            await asyncio.sleep(0.3)
            for number, future in list(self.pending.items()):
                if not future.done():
                    future.set_result(f"answer {number}")


async def sample(engine: Engine, number: int, answers: asyncio.Queue) -> None:
    await answers.put(await engine.request(number))


async def collect(answers: asyncio.Queue, count: int) -> list[str]:
    return [await answers.get() for _ in range(count)]


async def train() -> None:
    engine, answers = Engine(), asyncio.Queue()
    server = asyncio.create_task(engine.serve(), name="engine")
    for step in range(4, 9):
        for number in range(4):
            asyncio.create_task(sample(engine, 4 * step + number, answers))  # noqa: RUF006 - the fault
        await asyncio.sleep(0.1)
        if step == 6:  # the first update frees its activations
            gc.collect()
            _kit.here()
        print(f"step {step}", await collect(answers, 4), flush=True)
    server.cancel()


_kit.steps()
asyncio.run(train())
