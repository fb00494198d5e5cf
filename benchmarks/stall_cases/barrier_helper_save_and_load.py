"""Ranks 0 and 1 come to the helper `sync()` from the save, rank 2 from the load of the same checkpoint, and both wait for a file that only the other writes first.
---
ranks: 3
expect:
  kind: [sleep]
  says: [sync, save, load]
  never: ["computes", "(?i)queue", "(?i)network"]
"""

import os
import tempfile
import time

import _kit

dist = _kit.gloo()
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder, src=0)


def sync(name: str) -> None:
    while not os.path.exists(os.path.join(folder[0], name)):
        time.sleep(0.5)


def save() -> None:
    sync("loaded")
    open(os.path.join(folder[0], "saved"), "w").close()


def load() -> None:
    sync("saved")
    open(os.path.join(folder[0], "loaded"), "w").close()


if _kit.RANK == 0:
    _kit.here()
(load if _kit.RANK == 2 else save)()
