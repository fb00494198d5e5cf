"""A coroutine takes its rollouts from a queue.Queue, whose get() blocks the event loop: the coroutines that would put the rest never run again.
---
expect:
  kind: [queue, event-loop, lock]
  frame: collect
  says: ["collect|get"]
  never: ["(?i)computes", "(?i)network", "(?i)sleeps", "(?i)is gone|killed", "(?i)each other"]
"""

import asyncio
import queue

import _kit


async def generate(prompt: int) -> dict:
    await asyncio.sleep(0.3 + prompt / 10)
    return {"prompt": prompt, "tokens": list(range(prompt * 8))}


async def rollout(prompt: int, results: queue.Queue) -> None:
    results.put(await generate(prompt))


async def collect(results: queue.Queue, count: int) -> list[dict]:
    rows: list[dict] = []
    while len(rows) < count:
        if not results.empty() or len(rows) >= 4:  # the first half is enough to begin with
            if len(rows) == 4:
                _kit.here()
            rows.append(results.get())
        else:
            await asyncio.sleep(0.01)
    return rows


async def main() -> None:
    results: queue.Queue = queue.Queue()
    tasks = [asyncio.create_task(rollout(prompt, results)) for prompt in range(8)]
    rows = await collect(results, len(tasks))
    await asyncio.gather(*tasks)
    print(len(rows))


_kit.steps()
asyncio.run(main())
