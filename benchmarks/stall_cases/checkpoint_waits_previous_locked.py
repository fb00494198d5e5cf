"""save() waits for the write of the last checkpoint with the manager's lock held; that write is done but for the manifest, for which its thread takes the same lock.
---
expect:
  kind: [lock, future]
  says: ["save", "write_shards|record|lock"]
  never: ["(?i)computes", "(?i)sleeps", "(?i)network"]
"""

import concurrent.futures
import pathlib
import tempfile
import threading
import time

import _kit


class CheckpointManager:
    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.lock = threading.Lock()
        self.kept: list[int] = []
        self.pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.pending: concurrent.futures.Future | None = None

    def write_shards(self, step: int, state: bytes) -> None:
        for shard in range(4):
            (self.folder / f"{step}.{shard}").write_bytes(state)
            time.sleep(0.2)
        self.record(step)

    def record(self, step: int) -> None:
        with self.lock:
            self.kept.append(step)

    def save(self, step: int, state: bytes) -> None:
        with self.lock:
            if self.pending is not None:
                _kit.here()
                self.pending.result()  # one write at a time
            self.pending = self.pool.submit(self.write_shards, step, state)


_kit.steps()
with tempfile.TemporaryDirectory() as folder:
    manager = CheckpointManager(pathlib.Path(folder))
    for step in (10, 20, 30):
        manager.save(step, bytes(1 << 16))
