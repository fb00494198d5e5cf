"""A buffer actor of two threads: both take, and wait on the condition; the put of the driver needs a third.
---
ray: true
expect: {kind: [lock, ray, waits], frame: take, says: ["take"], never: ["computes", "sleeps"]}
"""

import threading

import _kit
import ray


@ray.remote(num_cpus=0, max_concurrency=2)
class Buffer:
    def __init__(self) -> None:
        self.rows, self.filled = [], threading.Condition()

    def take(self) -> int:
        with self.filled:
            while not self.rows:
                self.filled.wait()
            return self.rows.pop()

    def put(self, row: int) -> None:
        with self.filled:
            self.rows.append(row)
            self.filled.notify()


ray.init()
buffer = Buffer.remote()
ray.get(buffer.put.remote(1))
_kit.steps()
takes = [buffer.take.remote() for _ in range(3)]
ray.get(takes[0])
_kit.here()
ray.get(buffer.put.remote(2))
