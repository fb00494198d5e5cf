"""A driver waits for an actor that asks for more CPUs than there are.
---
ray: true
expect: {kind: [ray-demand], says: [Engine]}
"""

import _kit
import ray


@ray.remote(num_cpus=40)
class Engine:
    def ready(self) -> bool:
        return True


ray.init()
_kit.steps()
engine = Engine.remote()
_kit.here()
ray.get(engine.ready.remote())
