"""The callback of each grade puts it into a bounded queue that main empties only after pool.join(): the pool's result thread stands in put(), and the workers cannot hand over their next results.
---
expect:
  kind: [queue, join, subprocess]
  says: ['full|put']
  never: ['worker was killed', 'lock']
"""

import multiprocessing
import queue

import _kit


def grade(index):
    return index, bytes(200_000)


if __name__ == "__main__":
    _kit.steps()
    grades = queue.Queue(maxsize=4)
    pool = multiprocessing.get_context("fork").Pool(2)
    for index in range(40):
        pool.apply_async(grade, (index,), callback=grades.put)
    pool.close()
    _kit.here()
    pool.join()
    print(sum(1 for _ in range(grades.qsize())))
