"""After a jump of the KL the trainer publishes its best older checkpoint with shutil.copy2, which keeps the old modification time: the engine process polls for a newer file for ever, and the trainer waits at the pipe for its receipt.
---
expect:
  kind: [pipe, sleep, waits, other]
  says: ["wait_for_newer|serve|publish"]
  never: ["(?i)computes", "(?i)network", "(?i)(engine|child|process)[^;.]* (is gone|has ended|has died)", "(?i)waits? (for|at|in) [^;.]*lock"]
"""

import multiprocessing
import multiprocessing.connection
import shutil
import tempfile
import time
from pathlib import Path

import _kit

FOLDER = Path(tempfile.mkdtemp())
LIVE = FOLDER / "live.bin"


def wait_for_newer(loaded: float) -> float:
    while not LIVE.exists() or LIVE.stat().st_mtime <= loaded:
        time.sleep(0.1)
    return LIVE.stat().st_mtime


def serve(trainer: multiprocessing.connection.Connection) -> None:
    loaded = 0.0
    while True:
        loaded = wait_for_newer(loaded)
        trainer.send(len(LIVE.read_bytes()))


def publish(checkpoint: Path, engine: multiprocessing.connection.Connection) -> None:
    shutil.copy2(checkpoint, FOLDER / "live.tmp")
    (FOLDER / "live.tmp").replace(LIVE)
    print("the engine has loaded", engine.recv(), flush=True)


_kit.steps()
engine, far_end = multiprocessing.Pipe()
multiprocessing.get_context("fork").Process(target=serve, args=(far_end,), name="engine", daemon=True).start()
for step, kl in enumerate([0.01, 0.02, 0.9], start=1):
    checkpoint = FOLDER / f"step_{step}.bin"
    checkpoint.write_bytes(bytes(1000 * step))
    if kl > 0.5:
        checkpoint = FOLDER / "step_1.bin"
        _kit.here()
    publish(checkpoint, engine)
    time.sleep(0.3)
