"""Four rollouts wait for their grade in threads of asyncio's executor, which has only four: the grader, which would put the grades, is queued behind them in the same executor.
---
expect:
  kind: [event-loop, queue, future, lock]
  says: ["wait_for_grade|rollout|grade"]
  never: ["(?i)computes", "(?i)sleeps", "(?i)network|socket"]
"""

import asyncio
import queue
from concurrent.futures import ThreadPoolExecutor

import _kit


def wait_for_grade(mailbox: "queue.Queue[float]") -> float:
    return mailbox.get()


def grade_all(answers: "queue.Queue[tuple[str, queue.Queue[float]]]", count: int) -> None:
    for _ in range(count):
        text, mailbox = answers.get()
        mailbox.put(float(len(text)))


async def rollout(index: int, answers: "queue.Queue[tuple[str, queue.Queue[float]]]") -> float:
    mailbox: queue.Queue[float] = queue.Queue()
    answers.put((f"the answer is {index}", mailbox))
    return await asyncio.to_thread(wait_for_grade, mailbox)


async def round_of(count: int) -> list[float]:
    answers: queue.Queue[tuple[str, queue.Queue[float]]] = queue.Queue()
    rollouts = [asyncio.create_task(rollout(index, answers)) for index in range(count)]
    await asyncio.sleep(0.1)
    if count == 4:
        _kit.here()
    await asyncio.to_thread(grade_all, answers, count)
    return await asyncio.gather(*rollouts)


async def main() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4, thread_name_prefix="blocking"))
    for count in (2, 3, 4):
        print(await round_of(count), flush=True)


_kit.steps()
asyncio.run(main())
