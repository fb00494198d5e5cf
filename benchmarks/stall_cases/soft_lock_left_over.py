r"""A run that was killed has left its soft lock's file; the trainer polls for it. The engine beside it holds another lock file, of its compile cache.
---
expect:
  kind: [file-lock, sleep]
  says: ['export_weights|acquire']
  never: ['compile\.lock` is locked by', 'behind it pid \d+ .*sleeps', 'each waits']
"""

import fcntl
import multiprocessing
import os
import tempfile
import time
from pathlib import Path

import _kit
from filelock import SoftFileLock

FOLDER = Path(tempfile.mkdtemp(dir=os.environ["JOBSPEC_ATTEMPT_DIR"]))


def engine_loop():
    file = open(FOLDER / "compile.lock", "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    while True:
        time.sleep(2)


def export_weights():
    with SoftFileLock(FOLDER / "weights.lock"):
        print("exported", flush=True)


if __name__ == "__main__":
    _kit.steps()
    multiprocessing.get_context("fork").Process(target=engine_loop, daemon=True).start()
    (FOLDER / "weights.lock").touch()
    time.sleep(1)
    _kit.here()
    export_weights()
