"""A buffer actor's thread waits on a condition for weights of version 5, but the driver published 4 as the last.
---
ray: true
expect: {kind: [ray, lock], frame: wait_for_version, never: [SIGSTOP, "actor (is|has) (dead|died)"]}
"""

import threading

import _kit
import ray


@ray.remote(max_concurrency=4)
class Weights:
    def __init__(self) -> None:
        self.version, self.changed = 0, threading.Condition()

    def publish(self, version: int) -> None:
        with self.changed:
            self.version = version
            self.changed.notify_all()

    def wait_for_version(self, version: int) -> int:
        with self.changed:
            self.changed.wait_for(lambda: self.version >= version)
            return self.version


def rollout(weights, version: int) -> None:
    print(f"step {ray.get(weights.wait_for_version.remote(version))}", flush=True)


ray.init()
weights = Weights.remote()
for version in range(1, 5):
    ray.get(weights.publish.remote(version))
    rollout(weights, version)
_kit.here()
rollout(weights, 5)
