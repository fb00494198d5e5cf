"""Ranks 0 and 1 take the locks of two shards in the opposite order.
---
ranks: 2
expect: {kind: [file-lock, waits], ranks: [0, 1], says: ["take"], never: ["computes", "sleeps"]}
"""

import fcntl
import os

import _kit

FOLDER = os.environ["JOBSPEC_ATTEMPT_DIR"]


def take(name: str):
    file = open(os.path.join(FOLDER, name), "a")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


dist = _kit.gloo()
order = ["shard-a", "shard-b"]
if _kit.RANK == 1:
    order.reverse()
first = take(order[0])
dist.barrier()
_kit.here()
second = take(order[1])
dist.barrier()
