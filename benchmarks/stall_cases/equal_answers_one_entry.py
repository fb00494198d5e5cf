"""A reward thread collects the answers of a group in a dict by their text until it has four; two samples of an easy prompt are word for word the same, so the group stays at three, and it waits at the queue for a fourth; main waits for its future.
---
expect:
  kind: [queue, future, lock]
  says: ["score_groups|advantages|result"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)network", "(?i)socket", "(?i)queue is full|full queue"]
"""

import concurrent.futures
import queue
import random
import threading
import time

import _kit

SAMPLES = 4
answers: queue.Queue = queue.Queue()
groups: dict[int, concurrent.futures.Future] = {}


def score_groups() -> None:
    collected: dict[int, dict[str, float]] = {}
    while True:
        prompt, text = answers.get()
        group = collected.setdefault(prompt, {})
        group[text] = float(text.endswith("4"))
        if len(group) == SAMPLES:
            mean = sum(group.values()) / SAMPLES
            groups[prompt].set_result([reward - mean for reward in group.values()])
            del collected[prompt]


def sample(prompt: int, number: int) -> None:
    time.sleep(random.random() / 10)
    text = "2 + 2 = 4" if prompt == 2 and number < 2 else f"prompt {prompt}, way {number}: 4"
    answers.put((prompt, text))


def advantages(prompt: int) -> list[float]:
    groups[prompt] = concurrent.futures.Future()
    threads = [threading.Thread(target=sample, args=(prompt, number)) for number in range(SAMPLES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if prompt == 2:
        _kit.here()
    return groups[prompt].result()


_kit.steps()
threading.Thread(target=score_groups, name="rewards", daemon=True).start()
for prompt in range(4):
    advantages(prompt)
