"""A worker of a pool is killed, and its result never comes.
---
act: kill
expect: {kind: [queue, lock, other, worker-gone], says: ["map|grade|pool"], never: [computes]}
"""

import multiprocessing
import time

import _kit


def grade(row: int) -> int:
    time.sleep(5)
    return row


_kit.steps()
with multiprocessing.get_context("fork").Pool(1) as pool:
    _kit.here(pool._pool[0].pid)
    pool.map(grade, range(2))
