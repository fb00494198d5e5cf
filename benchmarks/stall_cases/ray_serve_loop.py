"""An engine actor of one thread runs its serving loop: the weights that the driver loads into it stay in its queue.
---
ray: true
expect: {kind: [ray, sleep, idle], frame: serve, never: [SIGSTOP, "actor (is|has) (dead|died)"]}
"""

import time

import _kit
import ray


@ray.remote
class Engine:
    def __init__(self) -> None:
        self.requests, self.weights = [], None

    def serve(self) -> None:
        while True:
            while not self.requests:
                time.sleep(0.05)
            self.requests.pop()

    def load_weights(self, weights: list) -> int:
        self.weights = weights
        return len(weights)


def sync_weights(engine) -> None:
    print("loaded", ray.get(engine.load_weights.remote([0.0] * 100)), flush=True)


ray.init()
engine = Engine.remote()
sync_weights(engine)
_kit.steps()
engine.serve.remote()
_kit.here()
sync_weights(engine)
