"""The main thread joins a thread that sleeps for ever.
---
expect: {kind: [sleep], frame: upload}
"""

import threading
import time

import _kit


def upload() -> None:
    _kit.here()
    time.sleep(3600)


_kit.steps()
thread = threading.Thread(target=upload, name="upload")
thread.start()
thread.join()
