"""A trainer actor of two threads holds its lock over ray.get of a generation; the engine asks it for the policy's version, and that call waits for the lock in the other thread.
---
ray: true
expect:
  kind: [lock, ray-cycle, ray]
  says: ["get_version", "train_step|generate"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)no node|not enough|never be scheduled", "(?i)actor[^.;]* (is dead|died|was killed)"]
"""

import threading
import time
from typing import Any

import _kit
import ray


@ray.remote(num_cpus=0, max_concurrency=2)
class Trainer:
    def __init__(self) -> None:
        self.lock, self.version = threading.Lock(), 0

    def get_version(self) -> int:
        with self.lock:
            return self.version

    def train_step(self, trainer: Any, engine: Any) -> int:
        with self.lock:
            answers = ray.get(engine.generate.remote(trainer, ["2 + 2 ="] * 4))
            self.version += 1
            return len(answers)


@ray.remote(num_cpus=0)
class Engine:
    def __init__(self) -> None:
        self.version = 0

    def generate(self, trainer: Any, prompts: list[str]) -> list[str]:
        self.version = ray.get(trainer.get_version.remote())
        return [prompt + " 4" for prompt in prompts]


ray.init()
_kit.steps()
trainer, engine = Trainer.remote(), Engine.remote()
print(ray.get(trainer.get_version.remote()), flush=True)
result = trainer.train_step.remote(trainer, engine)
time.sleep(4)
_kit.here()
ray.get(result)
