"""A rollout thread reads the weights under a read lock and asks for it once more in score(); between the two main has begun to wait as a writer, who goes first.
---
expect:
  kind: [lock]
  says: ["score|generate", "write"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)network", "(?i)queue"]
"""

import contextlib
import threading
from collections.abc import Iterator

import _kit


class WeightsLock:
    def __init__(self) -> None:
        self.changed, self.readers, self.writers = threading.Condition(), 0, 0

    @contextlib.contextmanager
    def read(self) -> Iterator[None]:
        with self.changed:
            self.changed.wait_for(lambda: not self.writers)  # else an update would never get its turn
            self.readers += 1
        yield
        with self.changed:
            self.readers -= 1
            self.changed.notify_all()

    @contextlib.contextmanager
    def write(self) -> Iterator[None]:
        with self.changed:
            self.writers += 1
            self.changed.wait_for(lambda: not self.readers)
            yield
            self.writers -= 1
            self.changed.notify_all()


weights, lock, generating = [0.1] * 64, WeightsLock(), threading.Event()


def score(answer: list[float]) -> float:
    with lock.read():
        return sum(map(float.__mul__, weights, answer))


def generate() -> None:
    with lock.read():
        generating.set()
        answer = [sum(weights[:token]) for token in range(1, 200_000)]
        _kit.here()
        score(answer)


_kit.steps()
threading.Thread(target=generate, name="rollout").start()
generating.wait()
with lock.write():
    weights[:] = [weight * 1.01 for weight in weights]
