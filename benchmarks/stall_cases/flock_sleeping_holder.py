"""Rank 0 sleeps in a download with the cache's flock in its hand; ranks 1 and 2 wait for the lock.
---
ranks: 3
expect:
  kind: [file-lock, sleep]
  ranks: [0]
  frame: download
  says: ["(?i)lock"]
  never: ["rank [12]( on [^ ]+)?( pid [0-9]+,?)? (holds|sleeps)",
          "rank 0( on [^ ]+)?( pid [0-9]+,?)? waits for the (file )?lock"]
"""

import fcntl
import os
import time
from pathlib import Path
from typing import IO

import _kit
import torch

dist = _kit.gloo()


def download() -> None:
    _kit.here()
    time.sleep(3600)


def enter_cache(lock: IO[str]) -> None:
    fcntl.flock(lock, fcntl.LOCK_EX)


with Path(os.environ["JOBSPEC_ATTEMPT_DIR"], "tokenizer.lock").open("a") as lock:
    if _kit.RANK == 0:
        enter_cache(lock)
        dist.barrier()
        download()
    dist.barrier()
    enter_cache(lock)
dist.all_reduce(torch.ones(4))
