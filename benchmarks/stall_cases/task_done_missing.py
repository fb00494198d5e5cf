"""The main thread is in queue.join(): a worker thread skipped an empty answer without task_done().
---
expect: {kind: [queue, lock, join], ranks: [0], frame: score_all, never: [SIGSTOP]}
"""

import queue
import threading
import time

import _kit

answers: queue.Queue = queue.Queue()
rewards: list[float] = []


def worker() -> None:
    while True:
        answer = answers.get()
        if not answer:
            continue
        rewards.append(float(len(answer)))
        answers.task_done()


def score_all(batch: list) -> None:
    for answer in batch:
        answers.put(answer)
    answers.join()


for _ in range(3):
    threading.Thread(target=worker, daemon=True).start()
for step in range(1, 4):
    score_all(["a"] * step)
    print(f"step {step}", flush=True)
    time.sleep(0.2)
_kit.here()
score_all(["a", "", "bc"])
