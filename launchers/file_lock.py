"""One command at a time on a run's files, across processes and the machines that share them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from jobspec.finding import fail

WAIT_S = 1800.0  # longer than a submission takes, or the download of a run's artifacts


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of `path` while the body runs; other callers wait, and the kernel frees it when we end.

    A caller that waits prints the holder on stderr. A file system without locks, or a file that cannot be
    written, gives no protection and no error.

    Raises: JobspecError with the holder when it goes on for longer than `WAIT_S`.
    """
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            # For writing: NFS gives an exclusive lock on nothing less.
            _lock(path, held.enter_context(path.open("r+b")))
        yield


def busy(path: Path) -> bool:
    """Whether another command holds the lock of `path`."""
    try:
        with path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _lock(path: Path, file: IO[bytes]) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stderr.write(f"waiting for {holder(file)} to be done with {path}; Ctrl-C ends the wait\n")
        sys.stderr.flush()
        # flock(2) knows no deadline. A thread that is left behind holds nothing: the file is closed by then.
        waiter = threading.Thread(target=_wait, args=(file.fileno(),), daemon=True)
        waiter.start()
        waiter.join(WAIT_S)
        if waiter.is_alive():
            raise fail(
                "launch.locked",
                f"{holder(file)} has held `{path}` for more than {WAIT_S:.0f} s",
                why="one command at a time works on a run's files, and that one may hang",
                fix="end it, here or on the machine that it runs on, and repeat this command",
            ) from None


def _wait(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)


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
