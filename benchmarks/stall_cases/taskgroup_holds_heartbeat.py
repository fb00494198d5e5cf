"""Rank 1's episodes are done, but its heartbeat is a task of the same TaskGroup, which waits for all its tasks at its end; the other ranks reduce.
---
ranks: 3
expect:
  kind: [event-loop, sleep]
  ranks: [1]
  says: ["heartbeat|collect", all_reduce]
  never: ["rank [02]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is gone|computes)", "[Aa]ll ranks[^;.]* same", "episode([(][)])? (waits|sleeps)"]
"""

import asyncio
import os
import time
from pathlib import Path

import _kit
import torch

dist = _kit.gloo()
ALIVE = Path(os.environ["JOBSPEC_ATTEMPT_DIR"], f"alive-{_kit.RANK}")


async def heartbeat() -> None:
    while True:
        ALIVE.write_text(str(time.time()))
        await asyncio.sleep(20)


async def episode(seed: int) -> float:
    await asyncio.sleep(0.05 * seed)
    return float(seed % 2)


async def collect(seeds: range, report: bool) -> list[float]:
    async with asyncio.TaskGroup() as group:
        if report:
            group.create_task(heartbeat(), name="heartbeat")
        episodes = [group.create_task(episode(seed)) for seed in seeds]
        await asyncio.wait(episodes)
        if report:
            _kit.here()
    return [task.result() for task in episodes]


rewards = asyncio.run(collect(range(4), report=_kit.RANK == 1))
dist.all_reduce(torch.tensor(rewards))
