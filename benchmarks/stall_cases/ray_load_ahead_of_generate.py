"""To overlap phases the driver submits the engine's load of the next weights before its generate: the engine takes calls in order and load's argument is the update's result, which waits in the trainer for the rows of that generate.
---
ray: true
expect:
  kind: [ray-cycle, ray, lock, queue, waits, several]
  says: ["update|Trainer|generate|load"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)resource", "(?i)(actor|worker)[^.;]* (died|is dead|is gone)"]
"""

import threading
import time

import _kit
import ray


@ray.remote(num_cpus=0)
class Engine:
    version = 0

    def load(self, version: int) -> int:
        self.version = version
        return version

    def generate(self, prompts: int) -> list[int]:
        return [self.version] * prompts


@ray.remote(num_cpus=0, max_concurrency=2)
class Trainer:
    def __init__(self) -> None:
        self.rows: list[int] = []
        self.changed = threading.Condition()
        self.version = 0

    def add(self, rows: list[int]) -> None:
        with self.changed:
            self.rows += rows
            self.changed.notify_all()

    def update(self, batch: int) -> int:
        with self.changed:
            while len(self.rows) < batch:
                self.changed.wait()
            del self.rows[:batch]
            self.version += 1
            return self.version


ray.init()
engine, trainer = Engine.remote(), Trainer.remote()
ray.get(trainer.add.remote(ray.get(engine.generate.remote(4))))
ray.get(engine.load.remote(trainer.update.remote(4)))
_kit.steps()
loaded = engine.load.remote(trainer.update.remote(4))
added = trainer.add.remote(engine.generate.remote(4))
time.sleep(3)
_kit.here()
ray.get([loaded, added])
