"""Two threads take two locks in opposite order.
---
expect: {kind: [lock], says: ["waits for `(one|two)`", "holds one of that name, and waits for"]}
"""

import threading
import time

import _kit

one, two = threading.Lock(), threading.Lock()


def save() -> None:
    with one:
        time.sleep(0.5)
        with two:
            pass


def log() -> None:
    with two:
        time.sleep(0.5)
        with one:
            pass


_kit.steps()
threads = [threading.Thread(target=save, name="save"), threading.Thread(target=log, name="log")]
for thread in threads:
    thread.start()
time.sleep(0.6)
_kit.here()
for thread in threads:
    thread.join()
