"""Two coroutines take two asyncio locks in opposite order; a third one waits for both to end.
---
expect:
  kind: [event-loop, lock]
  says: ["update_weights", "log_metrics"]
  never: ["(?i)sleeps", "(?i)computes", "network"]
"""

import asyncio

import _kit


async def update_weights(engine: asyncio.Lock, store: asyncio.Lock) -> None:
    async with engine:
        await asyncio.sleep(0.3)
        async with store:
            pass


async def log_metrics(engine: asyncio.Lock, store: asyncio.Lock) -> None:
    async with store:
        await asyncio.sleep(0.3)
        _kit.here()
        async with engine:
            pass


async def main() -> None:
    engine, store = asyncio.Lock(), asyncio.Lock()
    async with asyncio.timeout(None):
        await asyncio.gather(update_weights(engine, store), log_metrics(engine, store))


_kit.steps()
asyncio.run(main())
