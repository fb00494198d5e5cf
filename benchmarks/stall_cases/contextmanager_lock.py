"""A lock is taken in a context manager of one's own; the uploader holds it in its upload, main wants to log under it.
---
expect: {kind: [lock, sleep], says: ["upload"], never: ["holds it itself"]}
"""

import contextlib
import threading
import time

import _kit


class Log:
    def __init__(self) -> None:
        self._mutex = threading.Lock()

    @contextlib.contextmanager
    def exclusive(self):
        self._mutex.acquire()
        try:
            yield
        finally:
            self._mutex.release()

    def upload(self) -> None:
        with self.exclusive():
            time.sleep(3600)

    def write(self, row: str) -> None:
        with self.exclusive():
            print(row, flush=True)


_kit.steps()
log = Log()
threading.Thread(target=log.upload, name="uploader", daemon=True).start()
time.sleep(0.5)
_kit.here()
log.write("loss 0.1")
