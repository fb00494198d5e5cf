"""A watchdog has killed an environment while it waited for the shared event; set() still counts it among the sleepers and waits for its waking, with the event's lock held, for which the other environments wait.
---
expect:
  kind: [lock, worker-gone, waits]
  says: ["open_round"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)network", "SIGSTOP", "event.loop"]
"""

import multiprocessing
import time

import _kit

fork = multiprocessing.get_context("fork")


def environment(number: int, start: multiprocessing.Event, steps: multiprocessing.SimpleQueue) -> None:
    while True:
        start.wait()
        steps.put((number, 1.0))
        time.sleep(0.5)


class Environments:
    def __init__(self, count: int) -> None:
        self.start, self.steps = fork.Event(), fork.SimpleQueue()
        self.workers = [self.spawn(number) for number in range(count)]

    def spawn(self, number: int) -> multiprocessing.Process:
        worker = fork.Process(
            target=environment,
            args=(number, self.start, self.steps),
            name=f"environment-{number}",
            daemon=True,
        )
        worker.start()
        return worker

    def replace(self, number: int) -> None:
        """The watchdog's way with one that holds too much memory."""
        self.workers[number].kill()
        self.workers[number].join()
        self.workers[number] = self.spawn(number)

    def open_round(self) -> list[float]:
        self.start.set()
        rewards = [self.steps.get()[1] for _ in self.workers]
        self.start.clear()
        return rewards


environments = Environments(3)
_kit.steps()
time.sleep(1)
environments.replace(1)
time.sleep(1)
_kit.here()
print(environments.open_round())
