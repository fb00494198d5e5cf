"""The replay calls its hooks with its lock held; the hook that evicts takes that lock: the thread waits for itself.
---
expect:
  kind: [lock]
  says: ['evict_oldest']
  never: ['signal that', 'deadlock of two']
"""

import threading

import _kit


class Replay:
    def __init__(self, size):
        self.lock = threading.Lock()
        self.rows, self.size, self.hooks = [], size, []

    def add(self, row):
        with self.lock:
            self.rows.append(row)
            if len(self.rows) > self.size:
                _kit.here()
                for hook in self.hooks:
                    hook(len(self.rows))

    def evict_oldest(self, count):
        with self.lock:
            del self.rows[: count // 2]


_kit.steps()
replay = Replay(8)
replay.hooks.append(replay.evict_oldest)
for index in range(100):
    replay.add({"index": index})
