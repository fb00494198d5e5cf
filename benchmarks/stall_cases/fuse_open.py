"""Rank 1 opens a file on a FUSE mount whose server does not answer the open.
---
ranks: 3
expect:
  kind: [disk, other]
  ranks: [1]
  frame: open_index
  says: [barrier, "(?i)fuse|file system|open"]
  never: ["rank [02]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is stuck|has not come|is gone)", "FIFO"]
"""

from pathlib import Path

import _fuse
import _kit


def open_index(path: Path) -> bytes:
    _kit.here()
    with open(path, "rb") as file:
        return file.read(8)


if _kit.RANK == 1:
    index = _fuse.mounted("index", silent=_fuse.OPEN)
dist = _kit.gloo()
if _kit.RANK == 1:
    open_index(index)
dist.barrier()
