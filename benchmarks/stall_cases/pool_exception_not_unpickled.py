"""A grade raises an exception whose constructor takes two arguments: the pool's result thread dies of unpickling it, and main waits in map().
---
expect:
  kind: [queue, lock, future, waits, other, unknown]
  says: ["grade_all|map|pool"]
  never: ["(?i)sleeps", "(?i)computes", "network", "(?i)worker process[^.;]* (killed|gone|died)"]
"""

import multiprocessing
import multiprocessing.pool
import time

import _kit


class SandboxError(Exception):
    def __init__(self, code: int, output: str) -> None:
        super().__init__(f"exit {code}: {output}")
        self.code = code


def grade(row: int) -> float:
    time.sleep(0.1)
    if row == 5:
        raise SandboxError(137, "memory limit")
    return 1.0


def grade_all(pool: multiprocessing.pool.Pool, rows: range) -> list[float]:
    try:
        return pool.map(grade, rows, chunksize=1)
    except SandboxError:
        return [0.0] * len(rows)


_kit.steps()
with multiprocessing.get_context("fork").Pool(2) as pool:
    grade_all(pool, range(4))
    _kit.here()
    grade_all(pool, range(4, 12))
