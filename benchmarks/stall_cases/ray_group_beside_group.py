"""The engines' group of half a CPU stands with its actor in it; the trainer's group wants a whole one.
---
ray: true
expect:
  kind: [ray-demand]
  says: ["engines", "free"]
  never: ["sleeps", "computes", "dead", "INFEASIBLE"]
"""

import _kit
import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(num_cpus=0.5)
class Engine:
    def generate(self, prompt: int) -> int:
        return prompt


ray.init()
engines = placement_group([{"CPU": 0.5}], name="engines")
ray.get(engines.ready())
engine = Engine.options(
    scheduling_strategy=PlacementGroupSchedulingStrategy(placement_group=engines)
).remote()
for step in range(1, 4):
    print(f"step {step} {ray.get(engine.generate.remote(step))}", flush=True)
trainer = placement_group([{"CPU": 1}], name="trainer")
_kit.here()
ray.get(trainer.ready())
