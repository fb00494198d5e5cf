"""An engine looks for the named weight store in the namespace "rollout" and tries again each second, but the driver made it in its own: it never finds it.
---
ray: true
expect:
  kind: [sleep, ray]
  says: ["find_store|Engine|load"]
  never: ["(?i)computes", "(?i)actor[^;.]* (is dead|has died|dead)", "(?i)no node", "WeightStore[^;.]* sleeps"]
"""

import time

import _kit
import ray


@ray.remote(num_cpus=0)
class WeightStore:
    def __init__(self) -> None:
        self.weights = [0.0] * 8

    def get(self) -> list[float]:
        return self.weights


def find_store(name: str) -> ray.actor.ActorHandle:
    while True:
        try:
            return ray.get_actor(name, namespace="rollout")
        except ValueError:  # the trainer may not be there yet
            time.sleep(1)


@ray.remote(num_cpus=0)
class Engine:
    def generate(self, prompt: int) -> int:
        return prompt + 1

    def load(self) -> float:
        store = find_store("weights")
        return sum(ray.get(store.get.remote()))


ray.init()
store = WeightStore.options(name="weights").remote()
engine = Engine.remote()
for step in range(1, 4):
    print(
        f"step {step} {ray.get(engine.generate.remote(step))} {len(ray.get(store.get.remote()))}", flush=True
    )
loaded = engine.load.remote()
time.sleep(2)
_kit.here()
print(ray.get(loaded), flush=True)
