"""The replay is a deque of at most 64 rows, and a batch was raised to 128: main waits on the condition until it holds 128, while the rollout thread goes on adding and the oldest rows fall out.
---
expect:
  kind: [lock, sleep, waits, other]
  says: ["sample"]
  never: ["network", "(?i)is gone", "(?i)queue is (full|empty)", "(?i)deadlock"]
"""

import collections
import random
import threading
import time

import _kit


class Replay:
    def __init__(self, capacity: int) -> None:
        self.rows: collections.deque[float] = collections.deque(maxlen=capacity)
        self.changed = threading.Condition()

    def add(self, row: float) -> None:
        with self.changed:
            self.rows.append(row)
            self.changed.notify_all()

    def sample(self, batch: int) -> list[float]:
        with self.changed:
            self.changed.wait_for(lambda: len(self.rows) >= batch)
            return random.sample(list(self.rows), batch)


def rollouts(replay: Replay) -> None:
    while True:
        time.sleep(0.05)  # the engine's answer
        replay.add(random.random())


replay = Replay(capacity=64)
threading.Thread(target=rollouts, args=(replay,), name="rollouts", daemon=True).start()
for batch in (8, 16, 32):
    print(f"batch {batch}: {sum(replay.sample(batch)):.1f}", flush=True)
_kit.steps()
_kit.here()
replay.sample(128)
