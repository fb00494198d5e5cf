"""Rank 0 evaluates by a program that waits for a file lock which rank 2 holds in its own evaluation, at a barrier.
---
ranks: 3
expect:
  kind: [subprocess, file-lock, collective-order, rank-differs]
  ranks: [0]
  says: [evaluate, barrier]
  never: ["sleeps", "computes", "(?i)queue", "(?i)network"]
"""

import fcntl
import os
import subprocess
import tempfile

import _kit

dist = _kit.gloo()
path = [os.path.join(tempfile.mkdtemp(), "eval.lock")]
dist.broadcast_object_list(path, src=0)


def evaluate() -> None:
    subprocess.run(["flock", path[0], "true"], check=True)


if _kit.RANK == 2:
    handle = open(path[0], "w")
    fcntl.flock(handle, fcntl.LOCK_EX)
dist.barrier()
if _kit.RANK == 0:
    _kit.here()
    evaluate()
dist.barrier()
