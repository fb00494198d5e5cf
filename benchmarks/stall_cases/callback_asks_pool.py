"""The callback of a low grade asks the same pool for a careful grade and waits for it: callbacks run in the pool's result thread, which alone could bring that answer.
---
expect:
  kind: [lock, queue, future, waits, other]
  says: ["regrade|apply|callback|_handle_results|result thread"]
  never: ["(?i)computes", "(?i)network", "(?i)is gone|killed", "grade_carefully[^;.]*(sleeps|hangs)"]
"""

import multiprocessing
import time

import _kit


def grade(row: int) -> float:
    time.sleep(0.2)
    return 0.1 if row == 5 else 0.9


def grade_carefully(value: float) -> float:
    return min(1.0, value * 2)


class Grader:
    def __init__(self) -> None:
        self.pool = multiprocessing.get_context("fork").Pool(2)
        self.log: list[float] = []

    def regrade_low(self, value: float) -> None:
        if value < 0.5:
            _kit.here()
            value = self.pool.apply(grade_carefully, (value,))
        self.log.append(value)

    def grade_all(self, rows: range) -> list[float]:
        pending = [self.pool.apply_async(grade, (row,), callback=self.regrade_low) for row in rows]
        return [result.get() for result in pending]


_kit.steps()
grader = Grader()
print(grader.grade_all(range(4)), flush=True)
print(grader.grade_all(range(4, 12)), flush=True)
