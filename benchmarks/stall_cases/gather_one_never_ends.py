"""One of eight episodes of an asyncio.gather waits for a tool's answer that never comes.
---
expect:
  kind: [event-loop, future, idle]
  says: ["call_tool|episode"]
  never: ["(?i)is busy", "(?i)server does not answer"]
"""

import asyncio

import _kit


async def call_tool(number: int) -> str:
    answered = asyncio.Event()
    if number != 5:
        asyncio.get_running_loop().call_later(0.1, answered.set)
    else:
        await asyncio.sleep(0.5)  # the others have ended by then
        _kit.here()
    await answered.wait()
    return f"answer {number}"


async def episode(number: int) -> int:
    return len(await call_tool(number))


async def generate_all() -> list[int]:
    return await asyncio.gather(*(episode(number) for number in range(8)))


_kit.steps()
print(asyncio.run(generate_all()))
