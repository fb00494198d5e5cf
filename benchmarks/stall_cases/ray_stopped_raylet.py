"""raylet gets SIGSTOP while the driver waits for a task that needs a new worker.
---
ray: true
act: stop
expect: {kind: [stopped], says: [is stopped, raylet], never: ["score is stopped", "(?i)has not the resources"]}
"""

import os
import time
from pathlib import Path

import _kit
import ray


@ray.remote(num_cpus=1)
def score(row: int) -> int:
    return row


def raylet() -> int:
    """The pid of this node's raylet, which is the parent of its workers."""
    return int(ray.get(parent.remote()))


@ray.remote(num_cpus=1)
def parent() -> int:
    return os.getppid()


ray.init()
_kit.steps()
pid = raylet()
assert "raylet" in Path(f"/proc/{pid}/cmdline").read_text()
_kit.here(pid)

time.sleep(2)
print(ray.get(score.options(runtime_env={"env_vars": {"PART": "1"}}).remote(1)))
