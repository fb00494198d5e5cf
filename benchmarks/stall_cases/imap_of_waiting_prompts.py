"""pool.imap reads its prompts from a generator that waits for a curriculum thread, which has ended.
---
expect:
  kind: [queue, lock]
  says: ["score_stream|imap|results"]
  never: ["sleeps", "computes", "(?i)network"]
"""

import multiprocessing
import queue
import threading

import _kit

prompts: queue.Queue = queue.Queue()


def curriculum() -> None:
    for number in range(3):
        prompts.put(number)


def stream():
    while (prompt := prompts.get()) is not None:
        yield prompt


def score(prompt: int) -> int:
    return prompt * prompt


def score_stream(pool) -> None:
    for reward in pool.imap(score, stream()):
        print("reward", reward, flush=True)


_kit.steps()
with multiprocessing.get_context("fork").Pool(2) as pool:
    threading.Thread(target=curriculum).start()
    _kit.here()
    score_stream(pool)
