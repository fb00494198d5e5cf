"""A reward actor waits at its in-process queue; beside it a logger actor loops and sleeps, which is healthy.
---
ray: true
expect: {kind: [queue, ray], says: ["score"], never: ["is dead"]}
"""

import queue
import time

import _kit
import ray


@ray.remote(num_cpus=0)
class Logger:
    def run(self):
        while True:
            time.sleep(0.2)


@ray.remote(num_cpus=0)
class Reward:
    def score(self):
        return queue.Queue().get()


ray.init()
_kit.steps()
logger, reward = Logger.remote(), Reward.remote()
running = logger.run.remote()
time.sleep(2)
_kit.here()
ray.get(reward.score.remote())
