"""Two threads hold the weights' read lock, and each asks for the write lock within it.
---
expect:
  kind: [lock, join]
  says: [write, "refresh", "prune"]
  never: ["sleeps", "computes", "(?i)network", "(?i)queue"]
"""

import contextlib
import threading

import _kit


class ReadWrite:
    def __init__(self) -> None:
        self.changed, self.readers = threading.Condition(), 0

    @contextlib.contextmanager
    def read(self):
        with self.changed:
            self.readers += 1
        yield
        with self.changed:
            self.readers -= 1
            self.changed.notify_all()

    @contextlib.contextmanager
    def write(self):
        with self.changed:
            while self.readers:
                self.changed.wait()
            yield


lock, both = ReadWrite(), threading.Barrier(2)


def refresh() -> None:
    with lock.read():
        both.wait()
        with lock.write():
            print("new", flush=True)


def prune() -> None:
    with lock.read():
        both.wait()
        with lock.write():
            print("less", flush=True)


_kit.steps()
_kit.here()
threading.Thread(target=refresh, name="refresher").start()
prune()
