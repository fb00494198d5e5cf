"""A rollout thread waits on a condition until the weights' version equals the next one; the trainer publishes two versions while it still decodes, so it finds 3 and waits for 2; main waits at the queue for its rollouts.
---
expect:
  kind: [lock, queue]
  says: ["next_weights|rollout_loop|wait_for"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)network", "(?i)socket", "(?i)full queue|queue[^.;]* is full"]
"""

import queue
import threading
import time

import _kit


class Weights:
    def __init__(self) -> None:
        self.version = 1
        self.changed = threading.Condition()

    def publish(self) -> int:
        with self.changed:
            self.version += 1
            self.changed.notify_all()
            return self.version

    def next_weights(self, version: int) -> int:
        with self.changed:
            self.changed.wait_for(lambda: self.version == version)
            return self.version


def rollout_loop(weights: Weights, rollouts: queue.Queue) -> None:
    version = 1
    while True:
        if version == 2:
            _kit.here()
        version = weights.next_weights(version)
        for _ in range(4):
            rollouts.put({"version": version, "reward": 1.0})
            time.sleep(0.2)
        version += 1


def train(weights: Weights, rollouts: queue.Queue) -> None:
    for step in range(1, 100):
        batch = [rollouts.get() for _ in range(2)]
        print(f"step {step}: version {weights.publish()} after {len(batch)}", flush=True)


_kit.steps()
weights, rollouts = Weights(), queue.Queue()
threading.Thread(target=rollout_loop, args=(weights, rollouts), name="rollouts", daemon=True).start()
train(weights, rollouts)
