"""Main takes rollouts from a SimpleQueue that it calls its store; the thread that fills it has died of a KeyError.
---
expect:
  kind: [queue, lock]
  says: ['next_rollout']
  never: ['torch', 'key in a store']
"""

import queue
import threading

import _kit

store = queue.SimpleQueue()


def collect():
    for index in range(3):
        store.put({"reward": float(index)} if index < 2 else {}["reward"])


def next_rollout():
    return store.get()["reward"]


_kit.steps()
threading.excepthook = lambda args: print("collector failed", flush=True)
threading.Thread(target=collect, name="collector").start()
for index in range(3):
    if index == 2:
        _kit.here()
    print(f"step {index + 10} reward {next_rollout()}", flush=True)
