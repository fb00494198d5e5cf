"""A buffer has one condition for full and for empty: the only notify wakes another rollout instead of the trainer, and all wait on.
---
expect:
  kind: [lock, join]
  says: [put, take]
  never: ["sleeps", "computes", "(?i)network", "holds"]
"""

import threading

import _kit

changed = threading.Condition()
rows: list[int] = []


def put(row: int) -> None:
    with changed:
        while len(rows) >= 2:
            changed.wait()
        rows.append(row)


def take() -> int:
    with changed:
        while len(rows) < 4:
            changed.wait()
        return rows.pop()


def rollout() -> None:
    for row in range(10):
        put(row)


_kit.steps()
_kit.here()
threading.Thread(target=rollout, name="rollout").start()
print(take(), flush=True)
