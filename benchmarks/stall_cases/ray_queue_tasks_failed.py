"""Rollout tasks put their rows into a Ray queue, and nobody looks at their references: all have failed with a KeyError of a renamed column, and the driver waits in get() at the empty queue.
---
ray: true
expect: {kind: [ray, queue, event-loop, worker-gone, waits], says: ["[Qq]ueue|get"], never: ["(?i)sleeps", "(?i)computes", "resource", "(?i)queue is full", "network"]}
"""

import time

import _kit
import ray
from ray.util.queue import Queue


@ray.remote(num_cpus=0)
def rollout(row: dict[str, str], queue: Queue) -> None:
    answer = row["prompt"][::-1]
    queue.put({"answer": answer, "reward": float(len(answer))})


def batch(rows: list[dict[str, str]], queue: Queue, last: bool) -> list[dict[str, object]]:
    for row in rows:
        rollout.remote(row, queue)
    if last:
        time.sleep(4)
        _kit.here()
    return [queue.get() for _ in rows]


ray.init()
queue: Queue = Queue(actor_options={"num_cpus": 0})
print(len(batch([{"prompt": "two and two"}] * 3, queue, last=False)), flush=True)
_kit.steps()
batch([{"question": "three and three"}] * 3, queue, last=True)
