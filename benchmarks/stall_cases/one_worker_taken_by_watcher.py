"""The background executor has one thread, and the watcher of the config file was submitted to it first and never returns: the checkpoint's save is queued behind it, and main waits for its future.
---
expect:
  kind: [future, sleep, queue, waits]
  says: ["watch_config|background|save_and_wait"]
  never: ["(?i)computes", "network", "save_weights (sleeps|computes)", "(?i)(is|are) gone"]
"""

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import _kit

FOLDER = Path(os.environ["JOBSPEC_ATTEMPT_DIR"])
background = ThreadPoolExecutor(max_workers=1, thread_name_prefix="background")


def watch_config(path: Path) -> None:
    seen = 0.0
    while True:
        changed = path.stat().st_mtime if path.exists() else 0.0
        if changed > seen:
            seen = changed
            print("config read", flush=True)
        time.sleep(5)


def save_weights(step: int) -> Path:
    path = FOLDER / f"step-{step}.bin"
    path.write_bytes(bytes(1 << 20))
    return path


def save_and_wait(step: int) -> Path:
    pending: Future[Path] = background.submit(save_weights, step)
    _kit.here()
    return pending.result()


background.submit(watch_config, FOLDER / "config.yaml")
_kit.steps()
print(save_and_wait(3), flush=True)
