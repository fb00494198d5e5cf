"""Rank 2 reads a shard from a FUSE mount whose server has stopped to answer reads.
---
ranks: 3
expect:
  kind: [disk]
  ranks: [2]
  frame: read_shard
  says: [barrier, "(?i)fuse"]
  never: ["rank [01]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is stuck|has not come|is gone)"]
"""

from pathlib import Path

import _fuse
import _kit


def read_shard(path: Path) -> bytes:
    with path.open("rb") as file:
        _kit.here()
        return file.read()


if _kit.RANK == 2:
    shard = _fuse.mounted("shards", silent=_fuse.READ)
dist = _kit.gloo()
if _kit.RANK == 2:
    read_shard(shard)
dist.barrier()
