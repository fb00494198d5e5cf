"""A recorder flushes when nothing was added for two seconds: each add() starts the timer anew, and as the heartbeat adds a row twice a second, the flush that main waits for never comes.
---
expect:
  kind: [lock, sleep, waits, other]
  says: ["wait_flushed|flushed|Recorder|wait"]
  never: ["(?i)computes", "(?i)network|socket", "(?i)file.lock"]
"""

import threading
import time

import _kit


class Recorder:
    def __init__(self, quiet: float) -> None:
        self.quiet, self.rows, self.lock = quiet, [], threading.Lock()
        self.flushed, self.timer = threading.Event(), threading.Timer(0, lambda: None)

    def add(self, row: dict[str, float]) -> None:
        with self.lock:
            self.rows.append(row)
            self.flushed.clear()
            self.timer.cancel()
            self.timer = threading.Timer(self.quiet, self.flush)
            self.timer.daemon = True
            self.timer.start()

    def flush(self) -> None:
        with self.lock:
            print(f"wrote {len(self.rows)} rows", flush=True)
            self.rows.clear()
            self.flushed.set()

    def wait_flushed(self) -> None:
        self.flushed.wait()


def heartbeat(recorder: Recorder) -> None:
    while True:
        recorder.add({"alive": time.time()})
        time.sleep(0.5)


_kit.steps()
recorder = Recorder(quiet=2)
threading.Thread(target=heartbeat, args=(recorder,), name="heartbeat", daemon=True).start()
for step in range(3):
    recorder.add({"reward": step / 3})
_kit.here()
recorder.wait_flushed()
