"""The driver makes a new environment actor of one CPU for each episode and keeps them all for their transcripts: when every CPU is held the next one is not placed, and the driver waits for its episode.
---
ray: true
expect: {kind: [ray-demand, ray, waits], says: ["Environment|play|CPU"], never: ["(?i)sleeps", "(?i)computes", "network", "(?i)is dead|is gone|died"]}
"""

import time

import _kit
import ray


@ray.remote(num_cpus=1)
class Environment:
    def __init__(self, seed: int) -> None:
        self.seed, self.transcript = seed, []

    def play(self) -> float:
        self.transcript = [f"move {n}" for n in range(8)]
        return float(self.seed % 3)


ray.init()
_kit.steps()
cpus = int(ray.cluster_resources()["CPU"])
kept = []
for seed in range(cpus + 4):
    environment = Environment.remote(seed)
    kept.append(environment)
    reward = environment.play.remote()
    if seed == cpus:
        time.sleep(3)
        _kit.here()
    print(f"episode {seed}: {ray.get(reward)}", flush=True)
