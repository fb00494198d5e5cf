"""A decorated method takes its own lock again: add() is wrapped by a timer, and flush() calls it with the lock held.
---
expect: {kind: [lock], says: ["self.lock"], never: ["that is a callback", "that is a destructor"]}
"""

import functools
import threading
import time

import _kit


def timed(function):
    @functools.wraps(function)
    def wrapper(*args):
        began = time.time()
        value = function(*args)
        return value, time.time() - began

    return wrapper


class Log:
    def __init__(self):
        self.lock = threading.Lock()

    @timed
    def add(self, row):
        with self.lock:
            pass

    def flush(self):
        with self.lock:
            self.add("flushed")


_kit.steps()
_kit.here()
Log().flush()
