"""The task that ships metrics has died of a mean over no answers, which is NaN and no JSON; nobody looks at that task, the asyncio queue fills, and all evaluations wait in put().
---
expect:
  kind: [event-loop, queue]
  says: ["evaluate|put"]
  never: ["(?i)computes", "(?i)sleeps", "(?i)network"]
"""

import asyncio
import json

import _kit


async def ship(rows: asyncio.Queue, sent: list[str]) -> None:
    while True:
        sent.append(json.dumps(await rows.get(), allow_nan=False))


async def evaluate(task: str, lengths: list[int], rows: asyncio.Queue) -> None:
    for step in range(40):
        await asyncio.sleep(0.01)
        mean = sum(lengths) / len(lengths) if lengths else float("nan")
        if rows.full():
            _kit.here()
        await rows.put({"step": step, f"{task}/length": mean})


async def main() -> None:
    rows: asyncio.Queue = asyncio.Queue(maxsize=8)
    sent: list[str] = []
    shipper = asyncio.create_task(ship(rows, sent), name="shipper")
    answers = {"math": [3, 5], "code": [40, 7], "chat": [], "tools": [9]}
    await asyncio.gather(*(evaluate(task, lengths, rows) for task, lengths in answers.items()))
    shipper.cancel()
    print(len(sent), "rows")


_kit.steps()
asyncio.run(main())
