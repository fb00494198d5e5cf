"""Both threads of rank 1's pool wait for futures that only this pool could compute.
---
ranks: 2
expect:
  kind: [future, lock, join]
  ranks: [1]
  says: ["grade_all|grade_batch", all_reduce]
  never: ["rank 0( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)", "computes"]
"""

from concurrent.futures import ThreadPoolExecutor

import _kit
import torch

dist = _kit.gloo()
pool = ThreadPoolExecutor(2, thread_name_prefix="grader")


def grade(row: int) -> int:
    return row


def grade_batch(rows: range) -> int:
    _kit.here()
    return sum(future.result() for future in [pool.submit(grade, row) for row in rows])


def grade_all() -> int:
    return sum(future.result() for future in [pool.submit(grade_batch, range(4)) for _ in range(2)])


if _kit.RANK == 1:
    grade_all()
dist.all_reduce(torch.ones(4))
