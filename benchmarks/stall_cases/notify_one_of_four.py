"""Four rollout threads wait on a condition for the new policy version; the update wakes one with notify(), and main joins the other three.
---
expect:
  kind: [lock, join]
  says: ["rollout|wait_for_version"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)network", "(?i)queue", "rollout-[0-9][^;.]* holds"]
"""

import random
import threading

import _kit

version, published = 0, threading.Condition()
at_wait = threading.Semaphore(0)


def wait_for_version(wanted: int) -> None:
    with published:
        while version < wanted:
            at_wait.release()
            published.wait()


def rollout(number: int, rewards: list[float]) -> None:
    for wanted in range(2):
        wait_for_version(wanted)
        rewards[number] += random.random()


def publish() -> None:
    global version
    with published:
        version += 1
        published.notify()


def collect(threads: int = 4) -> float:
    rewards = [0.0] * threads
    workers = [
        threading.Thread(target=rollout, args=(i, rewards), name=f"rollout-{i}") for i in range(threads)
    ]
    for worker in workers:
        worker.start()
    for _ in workers:  # each has ended its episode of the old policy
        at_wait.acquire()
    publish()
    _kit.here()
    for worker in workers:
        worker.join()
    return sum(rewards)


_kit.steps()
print("step 4", collect(), flush=True)
