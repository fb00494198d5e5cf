"""A driver gets from a buffer actor, which waits for a push of an engine actor that was killed.
---
ray: true
expect:
  kind: [ray, ray-actor-dead, lock]
  says: ["collect|Buffer|Engine"]
  never: ["(?i)not enough|asks for [^;.]*(CPU|GPU)", "Buffer (is dead|died|was killed)"]
"""

import threading
import time
from typing import Any

import _kit
import ray


@ray.remote(num_cpus=0, max_concurrency=2)
class Buffer:
    def __init__(self) -> None:
        self.filled = threading.Event()

    def push(self) -> None:
        self.filled.set()

    def collect(self) -> int:
        self.filled.wait()
        return 64


@ray.remote(num_cpus=0)
class Engine:
    def ready(self) -> bool:
        return True

    def generate(self, buffer: Any) -> None:
        time.sleep(30)
        ray.get(buffer.push.remote())


ray.init()
buffer, engine = Buffer.remote(), Engine.remote()
ray.get(engine.ready.remote())
_kit.steps()
engine.generate.remote(buffer)
rows = buffer.collect.remote()
time.sleep(1.0)
ray.kill(engine)
_kit.here()
ray.get(rows)
