"""Main waits for the lock of shard 0, which an early return has left locked; the uploader sleeps with the lock of shard 1, another object of the same class.
---
expect:
  kind: [lock, sleep]
  says: ['append']
  never: ['uploader` holds at', 'which thread `uploader` holds']
"""

import threading
import time

import _kit


class Shard:
    def __init__(self, number):
        self.number, self.rows = number, []
        self.lock = threading.Lock()

    def append(self, row):
        self.lock.acquire()
        if row is None:
            return
        self.rows.append(row)
        self.lock.release()

    def upload(self):
        with self.lock:
            time.sleep(100_000)  # the store asks to slow down


_kit.steps()
shards = [Shard(0), Shard(1)]
threading.Thread(target=shards[1].upload, name="uploader", daemon=True).start()
time.sleep(0.5)
shards[0].append({"reward": 1.0})
shards[0].append(None)
_kit.here()
shards[0].append({"reward": 0.0})
