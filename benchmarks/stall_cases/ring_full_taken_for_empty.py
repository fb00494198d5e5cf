"""A ring of eight rollouts in shared memory fills during a long update: the rollout process polls for a free slot, and the trainer takes head = tail modulo eight for empty.
---
expect:
  kind: [sleep, waits, several, other, unknown]
  says: ["pop|push"]
  never: ["network", "(?i)computes", "(?i)waits for (a|the) lock", "(?i)process[^.;]* (was killed|is gone|has died)"]
"""

import ctypes
import multiprocessing
import time
from typing import Any

import _kit

SLOTS = 8


class Ring:
    """One writer, one reader, no lock: the writer moves head, the reader tail."""

    def __init__(self, context: Any) -> None:
        self.head = context.Value(ctypes.c_uint64, 0, lock=False)
        self.tail = context.Value(ctypes.c_uint64, 0, lock=False)
        self.rows = context.Array(ctypes.c_double, SLOTS, lock=False)

    def push(self, reward: float) -> None:
        while self.head.value - self.tail.value >= SLOTS:
            time.sleep(0.01)
        self.rows[self.head.value % SLOTS] = reward
        self.head.value += 1

    def pop(self) -> float:
        while self.head.value % SLOTS == self.tail.value % SLOTS:
            time.sleep(0.01)
        reward = self.rows[self.tail.value % SLOTS]
        self.tail.value += 1
        return reward


def roll_out(ring: Ring) -> None:
    while True:
        time.sleep(0.1)
        ring.push(1.0)


context = multiprocessing.get_context("fork")
ring = Ring(context)
context.Process(target=roll_out, args=(ring,), name="rollout", daemon=True).start()
for step in range(1, 4):
    ring.pop()
    print(f"step {step}", flush=True)
time.sleep(2)  # a long update
_kit.here()
print(sum(ring.pop() for _ in range(SLOTS)))
