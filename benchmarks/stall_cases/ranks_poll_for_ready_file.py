"""All ranks wait for the engine's ready file in a folder into which no engine writes.
---
ranks: 3
expect:
  kind: [sleep, waits]
  ranks: []
  says: [wait_for_engine]
  never: ["rank [0-2] on", "computes", "is gone", "(?i)network"]
"""

import os
import time

import _kit


def wait_for_engine(folder: str) -> None:
    while not os.path.exists(os.path.join(folder, "engine.ready")):
        time.sleep(1)


dist = _kit.gloo()
if _kit.RANK == 0:
    _kit.here()
wait_for_engine("/tmp/engines-of-no-run")
dist.barrier()
