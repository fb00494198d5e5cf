"""Room on the run's disk for an attempt's last words: its command may fill the disk or use up the quota.

Small files lie in the attempt's folder from the start; they are removed before the results are written. They
hold what no file system can press together. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FOLDER = ".reserve"
FILES = 6  # as many inodes
BYTES = 64 << 10  # of each: results of several hundred nodes in all


def keep(attempt_dir: Path) -> None:
    """Take the room; a disk that is full now has none."""
    with contextlib.suppress(OSError):
        (attempt_dir / FOLDER).mkdir()
        for number in range(FILES):
            (attempt_dir / FOLDER / str(number)).write_bytes(os.urandom(BYTES))


def release(attempt_dir: Path, count: int = FILES) -> None:
    """Give up to `count` files of it back."""
    with contextlib.suppress(OSError):
        for path in sorted((attempt_dir / FOLDER).iterdir())[:count]:
            path.unlink()
        (attempt_dir / FOLDER).rmdir()
