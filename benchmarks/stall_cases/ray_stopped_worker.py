"""A worker of Ray gets SIGSTOP while the driver waits for it.
---
ray: true
act: stop
expect: {kind: [stopped], says: [is stopped]}
"""

import os
import time

import _kit
import ray


@ray.remote(num_cpus=0)
class Engine:
    def pid(self) -> int:
        return os.getpid()

    def generate(self) -> int:
        time.sleep(5)
        return 1


ray.init()
_kit.steps()
engine = Engine.remote()
pid = ray.get(engine.pid.remote())
result = engine.generate.remote()
_kit.here(pid)
ray.get(result)
