"""A thread takes a lock that it already holds.
---
expect: {kind: [lock], frame: inner, says: [it holds one of that name itself]}
"""

import threading

import _kit

lock = threading.Lock()


def inner() -> None:
    with lock:
        pass


def outer() -> None:
    with lock:
        inner()


_kit.steps()
_kit.here()
outer()
