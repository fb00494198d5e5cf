"""What tests of two commands at once need to know: that one of them waits for the other."""

from __future__ import annotations

import os
import time
from pathlib import Path


def await_waiting_for_lock(seconds: float = 60.0) -> None:
    """Return once a thread of this process waits for a file's lock.

    Source: proc(5), `/proc/locks`; `->` is a waiter. Its inodes are not those of stat(2) everywhere.
    """
    waiter = f" {os.getpid()} "
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
        if any(" -> FLOCK " in line and waiter in line for line in lines):
            return
        time.sleep(0.01)
    raise AssertionError("nobody waits for a lock")
