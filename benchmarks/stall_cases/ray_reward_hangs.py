"""A driver waits for a reward actor that hangs.
---
ray: true
expect: {kind: [sleep], frame: score, says: ["Reward|score"]}
"""

import time

import _kit
import ray


@ray.remote(num_cpus=0)
class Reward:
    def score(self) -> float:
        time.sleep(3600)
        return 0.0


ray.init()
_kit.steps()
reward = Reward.remote()
result = reward.score.remote()
time.sleep(3)
_kit.here()
ray.get(result)
