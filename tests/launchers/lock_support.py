"""What tests of two commands at once need to know: that one of them waits for the other."""

from __future__ import annotations

import time
from pathlib import Path


def await_waiting_for_lock(path: Path, seconds: float = 60.0) -> None:
    """Return once somebody waits for the lock of a file. Source: proc(5), `/proc/locks`: `->` is a waiter."""
    inode = f":{path.stat().st_ino} "
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
        if any(" -> " in line and inode in line for line in lines):
            return
        time.sleep(0.01)
    raise AssertionError(f"nobody waits for the lock of {path}")
