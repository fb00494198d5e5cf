"""Each of four engine actors reserves three tenths of the cluster's memory: three are placed, the fourth is pending for ever, and the driver waits until all are ready.
---
ray: true
expect:
  kind: [ray, ray-demand, waits]
  says: ["(?i)memory|resource|pending|schedul|placed"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)each other", "(?i)(is|has) (gone|died|dead)"]
"""

import time

import _kit
import ray


@ray.remote(num_cpus=0)
class Engine:
    def __init__(self, number: int) -> None:
        self.number = number

    def ready(self) -> int:
        return self.number


ray.init()
_kit.steps()
share = int(ray.cluster_resources()["memory"] * 0.3)
engines = [Engine.options(memory=share, name=f"engine-{number}").remote(number) for number in range(4)]
pending = [engine.ready.remote() for engine in engines]
done, pending = ray.wait(pending, num_returns=3)
print("ready", sorted(ray.get(done)), flush=True)
time.sleep(1)
_kit.here()
ray.get(pending)
