"""An async rollout holds the engine's only slot and asks within it for a second one, to judge its own answer.
---
expect:
  kind: [event-loop, lock]
  says: ["judge|rollout|complete"]
  never: ["(?i)network", "sleeps", "computes", "(?i)queue"]
"""

import asyncio

import _kit

slots = asyncio.Semaphore(1)


async def complete(prompt: str) -> str:
    async with slots:
        await asyncio.sleep(0)
        return prompt[::-1]


async def rollout(prompt: str) -> str:
    async with slots:
        return await complete("judge " + prompt)


async def main() -> None:
    print(await asyncio.gather(*(rollout(str(number)) for number in range(4))), flush=True)


_kit.steps()
_kit.here()
asyncio.run(main())
