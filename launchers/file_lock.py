"""One command at a time on a run's files, across processes and the machines that share them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of `path` while the body runs; other callers wait, and the kernel frees it when we end.

    A caller that waits prints the holder on stderr. A file system without locks, or a file that cannot be
    written, gives no protection and no error.
    """
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            # For writing: NFS gives an exclusive lock on nothing less.
            _lock(path, held.enter_context(path.open("r+b")))
        yield


def _lock(path: Path, file: IO[bytes]) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stderr.write(f"waiting for {holder(file)} to be done with {path}; Ctrl-C ends the wait\n")
        sys.stderr.flush()
        fcntl.flock(file, fcntl.LOCK_EX)


def holder(file: IO[bytes]) -> str:
    """The holder of an open file's lock, for people; unknown on another machine or in a container."""
    status = os.fstat(file.fileno())
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    pid = ""
    with contextlib.suppress(OSError):
        pid = holder_pid(Path("/proc/locks").read_text(encoding="ascii"), place)
    return f"process {pid}" if pid else "another command"


def holder_pid(locks: str, place: str) -> str:
    """The process that holds the flock(2) of a file (`MAJOR:MINOR:INODE`), from `/proc/locks`; or "".

    Source: proc_locks(5). A waiter's line has `->` before its kind.
    """
    rows = (line.split() for line in locks.splitlines())
    return next((row[4] for row in rows if row[1] == "FLOCK" and row[5] == place), "")
