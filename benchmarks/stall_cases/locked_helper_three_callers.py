"""Rank 0 uploads within its lock on the index and sleeps there; ranks 1 and 2 ask for the lock by the same helper, from two functions.
---
ranks: 3
expect:
  kind: [sleep, file-lock]
  ranks: [0]
  says: [upload, save_index, load_index]
  never: ["rank [12] on [^;]*holds", "computes", "(?i)network", "(?i)queue"]
"""

import contextlib
import fcntl
import os
import tempfile
import time

import _kit

dist = _kit.gloo()
path = [os.path.join(tempfile.mkdtemp(), "index.lock")]
dist.broadcast_object_list(path, src=0)


@contextlib.contextmanager
def locked():
    with open(path[0], "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def upload() -> None:
    with locked():
        dist.barrier()
        _kit.here()
        time.sleep(3600)


def save_index() -> None:
    dist.barrier()
    with locked():
        pass


def load_index() -> None:
    dist.barrier()
    with locked():
        pass


(upload, save_index, load_index)[_kit.RANK]()
