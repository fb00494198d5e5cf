"""A trainer actor asks itself by its own handle for the policy version and waits for the answer.
---
ray: true
expect:
  kind: [ray, ray-cycle]
  says: ["train_step|Trainer"]
  never: ["sleeps", "computes", "(?i)placement", "resources"]
"""

import _kit
import ray


@ray.remote(num_cpus=0)
class Trainer:
    def version(self) -> int:
        return 4

    def train_step(self, me) -> int:
        return ray.get(me.version.remote()) + 1


ray.init()
_kit.steps()
trainer = Trainer.remote()
_kit.here()
print(ray.get(trainer.train_step.remote(trainer)), flush=True)
