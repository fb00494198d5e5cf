"""Rank 1 swallows an OSError of its shard and sleeps before the next try, for ever.
---
ranks: 4
expect:
  kind: [sleep]
  ranks: [1]
  frame: load_shard
  says: [all_reduce]
  never: ["rank [023]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)"]
"""

import time
from pathlib import Path

import _kit
import torch

dist = _kit.gloo()


def load_shard(path: Path) -> bytes:
    marked = False
    while True:
        try:
            return path.read_bytes()
        except Exception:
            if not marked:
                _kit.here()
                marked = True
            time.sleep(600)


if _kit.RANK == 1:
    load_shard(Path("/nonexistent/shards/00001.bin"))
dist.all_reduce(torch.ones(4))
