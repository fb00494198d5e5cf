"""A driver polls for ever for an answer of an actor that was killed.
---
ray: true
act: kill
expect: {kind: [ray-actor-dead, sleep], says: ["Engine|poll"]}
"""

import os
import time

import _kit
import ray


@ray.remote(num_cpus=0)
class Engine:
    def pid(self) -> int:
        return os.getpid()


def poll() -> None:
    while True:
        try:
            ray.get(engine.pid.remote(), timeout=1)
        except Exception:
            time.sleep(1)


ray.init()
_kit.steps()
engine = Engine.remote()
_kit.here(ray.get(engine.pid.remote()))
time.sleep(1)
poll()
