"""A ThreadPool grades; one grader waits for a tool's event that was never set.
---
expect: {kind: [queue, lock, waits], says: ["grade"], never: ["killed"]}
"""

import threading
from multiprocessing.pool import ThreadPool

import _kit

ready = threading.Event()


def grade(row):
    if row == 3:
        ready.wait()
    return row


_kit.steps()
pool = ThreadPool(4)
_kit.here()
pool.map(grade, range(8), chunksize=1)
