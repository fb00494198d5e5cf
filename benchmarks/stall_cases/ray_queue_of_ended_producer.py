"""The producer task puts eight rollouts into a Ray queue and ends; the driver takes a ninth.
---
ray: true
expect:
  kind: [queue, ray, event-loop, idle]
  says: ["(?i)queue", "next_rollout"]
  never: ["sleeps", "computes", "(?i)resources"]
"""

import _kit
import ray
from ray.util.queue import Queue


@ray.remote(num_cpus=0.5)
def produce(rollouts) -> None:
    for number in range(8):
        rollouts.put(number)


def next_rollout(rollouts) -> int:
    return rollouts.get()


ray.init()
_kit.steps()
rollouts = Queue(actor_options={"num_cpus": 0})
ray.get(produce.remote(rollouts))
for _ in range(8):
    next_rollout(rollouts)
_kit.here()
print(next_rollout(rollouts), flush=True)
