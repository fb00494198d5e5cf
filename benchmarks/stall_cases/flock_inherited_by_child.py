"""Rank 1 forked its metrics process while it had the cache's lock: the child has inherited the locked file, so the lock is still held after rank 1 has closed it.
---
ranks: 2
expect:
  kind: [file-lock, sleep]
  ranks: [1]
  says: ["append_rows|cache_lock|flock|lock", "all_reduce"]
  never: ["rank 0( on [^ ]+)?( pid [0-9]+,?)? (sleeps|holds|has not come|does not come|is gone)", "(?i)computes"]
"""

import contextlib
import fcntl
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path

import _kit
import torch

dist = _kit.gloo()
FOLDER = Path(os.environ["JOBSPEC_ATTEMPT_DIR"])


@contextlib.contextmanager
def cache_lock() -> Iterator[None]:
    with open(FOLDER / f"rows-{_kit.RANK}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield  # the file is closed here, and that gives the lock back


def publish_metrics() -> None:
    while True:
        (FOLDER / f"metrics-{_kit.RANK}").write_text(f"{time.time()}\n")
        time.sleep(5)


def open_cache() -> None:
    with cache_lock():
        (FOLDER / f"rows-{_kit.RANK}").touch()
        if _kit.RANK == 1:
            multiprocessing.get_context("fork").Process(target=publish_metrics, daemon=True).start()


def append_rows(rows: list[str]) -> None:
    with cache_lock(), open(FOLDER / f"rows-{_kit.RANK}", "a") as file:
        file.writelines(rows)


open_cache()
if _kit.RANK == 1:
    _kit.here()
append_rows(["{}\n"] * 8)
dist.all_reduce(torch.ones(4))
