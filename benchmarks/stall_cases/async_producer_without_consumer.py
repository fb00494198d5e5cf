"""The trainer's consumer task has ended with an error that nobody awaits; the producer waits for room in the asyncio queue.
---
expect:
  kind: [queue, event-loop]
  says: ["produce|put"]
  never: ["(?i)network", "sleeps", "computes", "between processes"]
"""

import asyncio

import _kit


async def consume(rows: asyncio.Queue) -> None:
    while True:
        row = await rows.get()
        print(row["reward"], flush=True)


async def produce(rows: asyncio.Queue) -> None:
    for number in range(20):
        await rows.put({"reward": 1.0} if number < 3 else {"rewards": 1.0})


async def main() -> None:
    rows: asyncio.Queue = asyncio.Queue(2)
    consumer = asyncio.create_task(consume(rows))
    await produce(rows)
    await consumer


_kit.steps()
_kit.here()
asyncio.run(main())
