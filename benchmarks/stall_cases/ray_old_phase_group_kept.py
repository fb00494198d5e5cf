"""The placement group of the generation phase, which is over, was never removed and holds every CPU: the driver waits for the group of the training phase.
---
ray: true
expect:
  kind: [ray-demand, ray]
  says: ["(?i)placement|bundle|CPU"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)actor[^;.]* (dead|died)", "(?i)CPUs? [^;.]{0,30}not exist"]
"""

import _kit
import ray
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(num_cpus=1)
def generate(prompt: int) -> int:
    return prompt * prompt


@ray.remote(num_cpus=1)
def train(answers: list[int]) -> float:
    return sum(answers) / len(answers)


def reserve(phase: str) -> PlacementGroup:
    group = placement_group([{"CPU": 1}] * int(ray.cluster_resources()["CPU"]), strategy="PACK", name=phase)
    if phase == "training":
        _kit.here()
    ray.get(group.ready())
    return group


ray.init()
generation = reserve("generation")
inside = PlacementGroupSchedulingStrategy(placement_group=generation)
for step in range(1, 4):
    answers = ray.get([generate.options(scheduling_strategy=inside).remote(prompt) for prompt in range(4)])
    print(f"step {step} {answers}", flush=True)
training = reserve("training")
inside = PlacementGroupSchedulingStrategy(placement_group=training)
print(ray.get(train.options(scheduling_strategy=inside).remote(answers)), flush=True)
