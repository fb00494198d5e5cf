"""A rollout that fails returns without giving its slot back: after two failures all threads wait for a slot, and main for their results.
---
expect:
  kind: [lock, future, join]
  says: [rollout, "slots|semaphore|lock"]
  never: ["(?i)network", "sleeps", "computes", "queue"]
"""

import threading
from concurrent.futures import ThreadPoolExecutor

import _kit

slots = threading.Semaphore(2)


def rollout(prompt: int) -> int:
    slots.acquire()
    if prompt % 3 == 0:
        return 0  # no answer: the slot is lost
    value = prompt * prompt
    slots.release()
    return value


_kit.steps()
_kit.here()
with ThreadPoolExecutor(4) as pool:
    pending = [pool.submit(rollout, prompt) for prompt in range(12)]
    print([one.result() for one in pending], flush=True)
