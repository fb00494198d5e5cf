"""Main awaits queue.join(); one of the scorers was ended by an exception between get() and task_done().
---
expect: {kind: [queue, event-loop], frame: score_all, says: ["score_all"], never: ["computes", "full", "multiprocessing"]}
"""

import asyncio

import _kit


async def scorer(answers: asyncio.Queue) -> None:
    while True:
        answer = await answers.get()
        if answer == 3:
            raise ValueError("not a number")
        answers.task_done()


async def score_all() -> None:
    answers: asyncio.Queue = asyncio.Queue()
    tasks = [asyncio.create_task(scorer(answers)) for _ in range(2)]
    for answer in range(8):
        answers.put_nowait(answer)
    _kit.here()
    await answers.join()
    for task in tasks:
        task.cancel()


_kit.steps()
asyncio.run(score_all())
