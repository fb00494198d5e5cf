"""Rank 0 put the checkpoint's marker into its own temporary folder: ranks 1 and 2 poll for it in theirs.
---
ranks: 3
expect:
  kind: [sleep]
  ranks: [1, 2]
  frame: wait_for_checkpoint
  says: [barrier]
  never: ["rank 0( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)"]
"""

import tempfile
import time
from pathlib import Path

import _kit

dist = _kit.gloo()


def wait_for_checkpoint(marker: Path) -> None:
    if _kit.RANK == 1:
        _kit.here()
    while not marker.exists():
        time.sleep(1.0)


with tempfile.TemporaryDirectory() as folder:
    marker = Path(folder, "step_3.done")
    if _kit.RANK == 0:
        marker.touch()
    wait_for_checkpoint(marker)
    dist.barrier()
