"""Two engine actors load their weights in the constructor; one reads its shard from a FIFO. The driver waits for both.
---
ray: true
expect: {kind: [pipe, ray], frame: load, says: ["Engine"], never: ["has not the resources", "is dead"]}
"""

import os
import tempfile

import _kit
import ray

folder = tempfile.mkdtemp()
os.mkfifo(folder + "/1")
open(folder + "/0", "w").close()


@ray.remote(num_cpus=0)
class Engine:
    def __init__(self, path):
        self.weights = self.load(path)

    def load(self, path):
        with open(path, "rb") as file:
            return file.read()

    def ready(self):
        return True


ray.init()
_kit.steps()
engines = [Engine.remote(f"{folder}/{index}") for index in range(2)]
_kit.here()
ray.get([engine.ready.remote() for engine in engines])
