"""From step 2 on a step has two generations, but the engine makes only one from the same weights and waits for a load; the driver asks the trainer actor what to load, and version() is queued there behind the update() of that second generation.
---
ray: true
expect:
  kind: [ray, lock, waits, ray-cycle, several]
  says: ["generate|version"]
  never: ["(?i)(died|is dead)", "(?i)sleeps", "(?i)computes", "(?i)resources?[^.;]* (missing|exist)", "(?i)pending creation"]
"""

import threading

import _kit
import ray


@ray.remote(num_cpus=0)
class Trainer:
    def __init__(self) -> None:
        self.steps = 0

    def update(self, rollouts: list[str]) -> int:
        self.steps += 1
        return len(rollouts)

    def version(self) -> int:
        return self.steps


@ray.remote(num_cpus=0, max_concurrency=2)
class Engine:
    def __init__(self) -> None:
        self.fresh = threading.Event()

    def load(self, version: int) -> None:
        self.loaded = version
        self.fresh.set()

    def generate(self, prompts: list[str]) -> list[str]:
        self.fresh.wait()  # never two batches from the same weights
        self.fresh.clear()
        return [f"{prompt} by {self.loaded}" for prompt in prompts]


def train(trainer: ray.actor.ActorHandle, engine: ray.actor.ActorHandle) -> None:
    ray.get(engine.load.remote(0))
    for step in range(4):
        for _ in range(1 if step < 2 else 2):  # the batch is ramped up
            trainer.update.remote(engine.generate.remote(["a", "b"]))
        if step == 2:
            _kit.here()
        version = ray.get(trainer.version.remote())
        engine.load.remote(version)
        print("step", step + 4, "version", version, flush=True)


ray.init()
_kit.steps()
train(Trainer.remote(), Engine.remote())
