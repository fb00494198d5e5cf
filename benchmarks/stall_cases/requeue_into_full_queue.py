"""Reward workers put an answer whose judging timed out back into the bounded queue from which they take, which the feeder has filled again at once: both workers and the feeder stand in put(), and nobody is left to get().
---
expect:
  kind: [queue, lock, join]
  says: ["put|judge_loop|feed|requeue"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)network", "(?i)socket", "(?i)empty queue|queue[^.;]* is empty"]
"""

import queue
import threading
import time

import _kit

answers: queue.Queue = queue.Queue(maxsize=4)
scores: dict[int, float] = {}


def judge(answer: int, tries: int) -> float:
    time.sleep(0.3)
    if answer >= 6 and tries == 0:
        raise TimeoutError("judge is cold")
    return float(answer % 2)


def judge_loop() -> None:
    while True:
        answer, tries = answers.get()
        try:
            scores[answer] = judge(answer, tries)
        except TimeoutError:
            requeue(answer, tries + 1)


def requeue(answer: int, tries: int) -> None:
    answers.put((answer, tries))


def feed(count: int) -> None:
    for answer in range(count):
        answers.put((answer, 0))


_kit.steps()
workers = [threading.Thread(target=judge_loop, name=f"judge-{number}", daemon=True) for number in range(2)]
for worker in workers:
    worker.start()
feeder = threading.Thread(target=feed, args=(64,), name="feeder", daemon=True)
feeder.start()
while len(scores) < 6:
    time.sleep(0.05)
time.sleep(1)
_kit.here()
feeder.join()
