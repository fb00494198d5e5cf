"""Rollouts put (priority, row) into an asyncio.PriorityQueue; two equal priorities compare the rows, which are dicts: put() raises in one rollout's task, and the learner waits at the queue for its rows.
---
expect:
  kind: [event-loop, queue, waits]
  says: ["learn"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)network", "(?i)waits? (for|at|in) [^;.]*lock"]
"""

import asyncio

import _kit


async def rollout(task: str, rewards: list[float], late: float, replay: asyncio.PriorityQueue) -> None:
    await asyncio.sleep(late)
    for reward in rewards:
        await replay.put((-reward, {"task": task, "reward": reward}))
        await asyncio.sleep(1.0)


async def learn(replay: asyncio.PriorityQueue, rows: int) -> None:
    for row in range(rows):
        if row == 4 + 1:
            _kit.here()
        priority, episode = await replay.get()  # noqa: RUF059
        print(f"row {row} priority {priority}", flush=True)
        await asyncio.sleep(0.05 if row else 1.7)  # the first update compiles


async def main() -> None:
    replay: asyncio.PriorityQueue = asyncio.PriorityQueue()
    math = asyncio.create_task(rollout("math", [0.1, 0.5, 0.3, 0.2], 0.0, replay), name="math")
    code = asyncio.create_task(rollout("code", [0.5, 0.7, 0.9, 0.8], 1.2, replay), name="code")
    await learn(replay, 8)
    await asyncio.gather(math, code)


_kit.steps()
asyncio.run(main())
