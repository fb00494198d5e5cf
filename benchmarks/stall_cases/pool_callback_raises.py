"""The callback that logs a grade raises a KeyError, which the pool's result thread swallows: the result of that row is never set, and main waits for it.
---
expect:
  kind: [lock, queue, other, waits, idle, future]
  says: ["grade_batch|log_grade|[Pp]ool"]
  never: ["(?i)computes", "(?i)killed", "(?i)network", "MainThread[^;.]* sleeps", "worker[^;.]* (is gone|has died|has ended)"]
"""

import multiprocessing
from typing import Any

import _kit

totals = {"math": 0.0, "code": 0.0}


def grade(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "reward": float(row["answer"] == row["truth"])}


def log_grade(graded: dict[str, Any]) -> None:
    totals[graded["source"]] += graded["reward"]


def grade_batch(pool: Any, batch: list[dict[str, Any]]) -> list[float]:
    pending = [pool.apply_async(grade, (row,), callback=log_grade) for row in batch]
    return [result.get()["reward"] for result in pending]


if __name__ == "__main__":
    _kit.steps()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        good = [{"source": "math", "answer": number % 3, "truth": 1} for number in range(8)]
        print("step 4", sum(grade_batch(pool, good)), flush=True)
        _kit.here()
        print(
            "step 5",
            sum(grade_batch(pool, [*good, {"source": "logic", "answer": 1, "truth": 1}, *good])),
            flush=True,
        )
