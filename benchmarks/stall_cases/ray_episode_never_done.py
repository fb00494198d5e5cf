"""An environment counts two for a move and ends an episode at exactly 33: one of three actors plays on for ever, and the driver waits for all.
---
ray: true
expect:
  kind: [busy]
  frame: play
  says: ["play|Environment"]
  never: ["(?i)sleeps", "network", "(?i)actor[^.;]* (died|is dead|is gone)", "(?i)no (such )?(node|resource)"]
"""

import _kit
import ray


@ray.remote(num_cpus=0)
class Environment:
    def play(self, horizon: int, seed: int) -> int:
        clock, state = 0, seed
        while clock != horizon:
            state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
            clock += 2  # a move of ours and one of the opponent's
        return state & 1


ray.init()
_kit.steps()
environments = [Environment.remote() for _ in range(3)]
print(
    ray.get([environment.play.remote(32, seed) for seed, environment in enumerate(environments)]), flush=True
)
horizons = [32, 33, 64]
episodes = [
    environment.play.remote(horizon, 1) for environment, horizon in zip(environments, horizons, strict=True)
]
_kit.here()
print(ray.get(episodes))
