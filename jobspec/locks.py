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
    """Keep other processes that call this for the same file waiting; the kernel lets go when we end.

    Who waits is told for whom, on stderr. A file system without locks, or a file that cannot be written,
    costs this protection and nothing else.
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
    """Who holds the lock of an open file, for people; one on another machine or in a container is unknown.

    Source: proc_locks(5).
    """
    status = os.fstat(file.fileno())
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if words[1] == "FLOCK" and words[5] == place:
                argv = Path("/proc", words[4], "cmdline").read_bytes().replace(b"\0", b" ")
                command = " ".join(os.fsdecode(argv).split())
                return f"process {words[4]} ({command[:80]})"
    return "another command"
