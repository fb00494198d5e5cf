"""Rollout tasks on all CPUs wait for their score tasks by concurrent futures and not by ray.get, so they give no CPU back, and no score task is ever scheduled.
---
ray: true
expect:
  kind: [ray-demand, ray, future, lock]
  says: ["roll_out", "score"]
  never: ["network", "(?i)computes", "(?i)actor[^.;]* (died|is dead|is gone)"]
"""

import concurrent.futures
import time

import _kit
import ray


@ray.remote(num_cpus=1)
def score(answer: str) -> float:
    return float("42" in answer)


@ray.remote(num_cpus=1)
def roll_out(prompt: str) -> float:
    time.sleep(2)  # generates
    scores = [score.remote(f"{prompt} {answer}").future() for answer in range(40, 44)]
    done, _ = concurrent.futures.wait(scores)
    return sum(future.result() for future in done)


ray.init()
_kit.steps()
cpus = int(ray.cluster_resources()["CPU"])
rollouts = [roll_out.remote(f"{row} * 7 =") for row in range(4 * cpus)]
time.sleep(4)
_kit.here()
print(sum(ray.get(rollouts)))
