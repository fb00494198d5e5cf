"""A counting lock of one's own: its acquire() waits on a condition, and the trainer's thread has it for a download; main asks for it in log_step().
---
expect:
  kind: [lock, sleep]
  says: [log_step, "download|fetch"]
  never: ["computes", "(?i)queue", "(?i)network"]
"""

import threading
import time

import _kit


class Slot:
    def __init__(self) -> None:
        self.changed, self.taken = threading.Condition(), False

    def acquire(self) -> None:
        with self.changed:
            while self.taken:
                self.changed.wait()
            self.taken = True

    def release(self) -> None:
        with self.changed:
            self.taken = False
            self.changed.notify()


slot = Slot()


def fetch() -> None:
    slot.acquire()
    time.sleep(3600)


def log_step(step: int) -> None:
    slot.acquire()
    print(step, flush=True)
    slot.release()


_kit.steps()
threading.Thread(target=fetch, name="fetcher", daemon=True).start()
time.sleep(0.5)
_kit.here()
log_step(4)
