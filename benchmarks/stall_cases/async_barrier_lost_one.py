"""Four episodes meet at an asyncio.Barrier after each turn; one of them has left early with a solved task.
---
expect:
  kind: [event-loop, lock]
  says: ['episode']
  never: ['lock or a semaphore', 'network', 'connection']
"""

import asyncio

import _kit


async def episode(index, barrier):
    for turn in range(10):
        if (index, turn) == (2, 3):
            _kit.here()
            return index
        async with barrier:
            await asyncio.sleep(0.05)
    return index


async def main():
    barrier = asyncio.Barrier(4)
    print(await asyncio.gather(*(episode(index, barrier) for index in range(4))))


_kit.steps()
asyncio.run(main())
