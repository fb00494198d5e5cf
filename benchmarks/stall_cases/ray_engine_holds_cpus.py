"""The engine actor, which is idle, holds every CPU: the reward task, which asks for one, is never scheduled.
---
ray: true
expect:
  kind: [ray-demand, ray]
  says: [score, CPU]
  never: ["(?i)no node (has|with) (a )?GPU", "(?i)actor (is dead|was killed|has died)"]
"""

import _kit
import ray

ray.init(log_to_driver=False)
cpus = int(ray.cluster_resources()["CPU"])


@ray.remote
class Engine:
    def generate(self, step: int) -> list[int]:
        return [step] * 8


@ray.remote(num_cpus=1)
def score(samples: list[int]) -> float:
    return float(sum(samples))


engine = Engine.options(num_cpus=cpus).remote()
for step in range(1, 4):
    samples = ray.get(engine.generate.remote(step))
    print(f"step {step}", flush=True)


def wait_for_rewards() -> float:
    reward = score.remote(samples)
    _kit.here()
    return ray.get(reward)


wait_for_rewards()
