"""The one way to replace a file: whole or not at all, and through no link that somebody put in its place.

A run folder may lie on a disk that others write too. A partial file of a name that can be guessed could be a
link to any file of ours, so the name is random, and the file must not have been there. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import BinaryIO, Iterator

FILE_MODE = 0o644  # at most; the umask may take more away


def beside(path: Path) -> Path:
    """A name in the folder of `path` that nobody can guess, for what will be renamed to `path`."""
    return path.with_name(f".{path.name[:60]}.{os.urandom(8).hex()}.tmp")


@contextlib.contextmanager
def replacing(path: Path, mode: int = FILE_MODE, sync: bool = True) -> Iterator[BinaryIO]:
    """A new file that takes the name `path` at the end of the block, on the disk by then; parents are made.

    Without `sync` a power failure may leave it empty: for copies of which a list with digests tells.
    After an exception there is no new file, and the old one stays. Raises: OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = beside(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(partial, flags, mode), "wb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        partial.replace(path)
    except BaseException as problem:
        with contextlib.suppress(OSError):
            partial.unlink()
        if isinstance(problem, OSError) and str(problem.filename or partial) == str(partial):
            problem.filename, problem.filename2 = str(path), None  # nobody knows the other name
        raise


def write_bytes(path: Path, data: bytes, mode: int = FILE_MODE) -> None:
    """Replace a file: a reader sees the old or the new one, never a half. Raises: OSError."""
    with replacing(path, mode) as file:
        file.write(data)


def write_text(path: Path, text: str, mode: int = FILE_MODE) -> None:
    """`write_bytes` of UTF-8; what is none, such as half a character of a file's name, is escaped."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"), mode)
