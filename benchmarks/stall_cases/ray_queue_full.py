"""A driver puts a fifth rollout into a Ray queue of four that nobody empties.
---
ray: true
expect:
  kind: [ray, queue, event-loop]
  says: ["(?i)queue|fill"]
  never: ["(?i)not enough|asks for [^;.]*(CPU|GPU)", "(?i)is dead|died", "(?i)queue is empty"]
"""

from typing import Any

import _kit
import ray
from ray.util.queue import Queue


def fill(rollouts: Any, count: int) -> None:
    for number in range(count):
        if number == rollouts.maxsize:
            _kit.here()
        rollouts.put({"id": number, "tokens": [0] * 128})


ray.init()
rollouts = Queue(maxsize=4, actor_options={"num_cpus": 0})
_kit.steps()
fill(rollouts, 5)
