"""Main waits for the cache's self.lock, which an exception left locked; the writer thread holds its own self.lock in a write.
---
expect: {kind: [lock], says: ["lookup"], never: ["thread `writer` holds", "which thread `writer`"]}
"""

import os
import threading
import time

import _kit


class Writer:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def write(self, fd: int) -> None:
        with self.lock:
            os.write(fd, bytes(1 << 20))


class Cache:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def fill(self) -> None:
        self.lock.acquire()
        raise ValueError("no such prompt")

    def lookup(self, key: str) -> None:
        self.lock.acquire()


_kit.steps()
reader, writer = os.pipe()
cache = Cache()
threading.Thread(target=Writer().write, args=(writer,), name="writer", daemon=True).start()
try:
    cache.fill()
except ValueError as problem:
    print(problem)
time.sleep(0.5)
_kit.here()
cache.lookup("a")
