"""The reward model asks for a node with the label of an H100 zone, which no node has, though its CPUs are free; the driver waits for its first score.
---
ray: true
expect:
  kind: [ray-demand, ray]
  says: ["RewardModel|score"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)actor[^.;]* (died|is dead|is gone)"]
"""

import _kit
import ray


@ray.remote(num_cpus=0)
class Rollout:
    def generate(self, prompt: str) -> str:
        return prompt + " 42"


@ray.remote(num_cpus=0, label_selector={"reward-zone": "h100"})
class RewardModel:
    def score(self, answer: str) -> float:
        return float("42" in answer)


ray.init()
_kit.steps()
rollout, reward = Rollout.remote(), RewardModel.remote()
answer = rollout.generate.remote("6 * 7 =")
ray.wait([answer])
_kit.here()
print(ray.get(reward.score.remote(answer)))
