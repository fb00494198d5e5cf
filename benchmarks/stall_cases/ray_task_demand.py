"""A driver waits for a task that asks for a resource which no node has.
---
ray: true
expect:
  kind: [ray-demand, ray]
  says: ["reward_model|wait for a result of Ray|waits for a result of Ray|judge"]
  never: ["(?i)is dead|died", "(?i)computes|sleeps"]
"""

import _kit
import ray


@ray.remote(num_cpus=0, resources={"judge": 1})
def judge(row: int) -> int:
    return row


def reward_model() -> list[int]:
    _kit.here()
    return ray.get([judge.remote(row) for row in range(4)])


ray.init()
_kit.steps()
reward_model()
