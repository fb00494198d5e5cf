"""A reward actor holds the only CPU: the placement group of the engines waits for it.
---
ray: true
expect:
  kind: [ray-demand]
  says: ["(?i)placement group", "Reward", "free"]
  never: ["sleeps", "computes", "dead"]
"""

import _kit
import ray
from ray.util.placement_group import placement_group


@ray.remote(num_cpus=1)
class Reward:
    def score(self, answer: int) -> int:
        return answer


ray.init()
reward = Reward.remote()
for step in range(1, 4):
    print(f"step {step} {ray.get(reward.score.remote(step))}", flush=True)
group = placement_group([{"CPU": 1}])
_kit.here()
group.wait(3600)
