"""The constructor of the trainer actor asks the engine actor for its address, and the engine's constructor the trainer for its vocabulary: neither is ready to answer.
---
ray: true
expect:
  kind: [ray-cycle, ray, several]
  says: ["(?i)trainer", "(?i)engine"]
  never: ["(?i)computes", "(?i)sleeps", "(?i)more CPUs|no node|resources that", "(?i)(is|has) (gone|died|dead)"]
"""

import time

import _kit
import ray


@ray.remote(num_cpus=0)
class Trainer:
    def __init__(self) -> None:
        time.sleep(1)  # reads its configuration
        self.vocabulary = 32_000
        self.engine = ray.get_actor("engine")
        self.address = ray.get(self.engine.get_address.remote())

    def get_vocabulary(self) -> int:
        return self.vocabulary

    def step(self) -> float:
        return 0.0


@ray.remote(num_cpus=0)
class Engine:
    def __init__(self) -> None:
        time.sleep(1)
        self.address = "127.0.0.1:8000"
        self.vocabulary = ray.get(ray.get_actor("trainer").get_vocabulary.remote())

    def get_address(self) -> str:
        return self.address


ray.init()
_kit.steps()
trainer = Trainer.options(name="trainer").remote()
engine = Engine.options(name="engine").remote()
result = trainer.step.remote()
time.sleep(5)
_kit.here()
print(ray.get(result))
