"""A coroutine holds a threading.Lock over an await; another one takes the same lock: the whole loop stands.
---
expect: {kind: [lock, event-loop], says: [record], never: ["sleeps", "another thread"]}
"""

import asyncio
import threading

import _kit

lock = threading.Lock()


async def upload() -> None:
    with lock:
        await asyncio.sleep(1)


async def record() -> None:
    await asyncio.sleep(0.2)
    with lock:
        print("recorded")


async def main() -> None:
    _kit.here()
    await asyncio.gather(upload(), record())


_kit.steps()
asyncio.run(main())
