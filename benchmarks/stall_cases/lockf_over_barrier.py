"""Rank 0 holds a POSIX lock on the shard's index while it is in the barrier; rank 1 waits for that lock before its barrier.
---
ranks: 3
expect:
  kind: [file-lock, rank-differs, collective-absent]
  ranks: [1]
  says: ['open_index', 'lockf']
  never: ['rank 2 .*lock on', 'process itself holds', 'held by rank 2']
"""

import fcntl
import os
import time

import _kit

PATH = os.path.join(os.environ["JOBSPEC_ATTEMPT_DIR"], "index.bin")


def open_index():
    file = open(PATH, "a+")
    fcntl.lockf(file, fcntl.LOCK_EX)
    return file


dist = _kit.gloo()
if _kit.RANK == 0:
    index = open_index()
    dist.barrier()
    fcntl.lockf(index, fcntl.LOCK_UN)
elif _kit.RANK == 1:
    time.sleep(1)
    _kit.here()
    open_index()
    dist.barrier()
else:
    dist.barrier()
