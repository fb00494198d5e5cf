"""A replica actor pushes its weights to all replicas and waits for their receipts; the list holds the replica itself, which has one thread, and that is in the push.
---
ray: true
expect:
  kind: [ray-cycle, ray]
  says: ["push_weights", "(?i)itself|cycle|accept|Replica"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)no node|never be scheduled", "(?i)actor[^.;]* (is dead|died|was killed)"]
"""

import time
from typing import Any

import _kit
import ray


@ray.remote(num_cpus=0)
class Replica:
    def __init__(self, index: int) -> None:
        self.index, self.weights = index, [float(index)] * 16

    def accept(self, weights: list[float]) -> int:
        self.weights = weights
        return self.index

    def push_weights(self, replicas: list[Any]) -> list[int]:
        return ray.get([replica.accept.remote(self.weights) for replica in replicas])

    def score(self) -> float:
        return sum(self.weights)


ray.init()
_kit.steps()
replicas = [Replica.remote(index) for index in range(3)]
print(ray.get([replica.score.remote() for replica in replicas]), flush=True)
receipts = replicas[0].push_weights.remote(replicas)
time.sleep(4)
_kit.here()
ray.get(receipts)
