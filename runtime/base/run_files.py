"""Opens and reads the files of a run folder: regular files only, and never more than memory can hold.

Such a folder may be a copy, damaged, or somebody else's. A pipe under the name of a log would block its
reader for ever, and a file of any size would fill the memory of a login node. Standard library only.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Tuple, Union

MAX_FILE_BYTES = 256 * 1024**2  # of a file read whole; results of a thousand nodes have a few MiB
MAX_LINE_BYTES = 16 * 1024**2  # of a line; the rest of a longer one is left out


class UnfitFileError(OSError):
    """A pipe or a device stands there, or a file that no run writes so large."""


def open_file(path: Path) -> BinaryIO:
    """The regular file at `path`, to be read. Raises: OSError, also for a folder, a pipe or a device."""
    descriptor, _ = _open(path)
    return os.fdopen(descriptor, "rb")


def _open(path: Path) -> Tuple[int, int]:
    """An open descriptor of a regular file, and the file's size in bytes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for a writer
    info = os.fstat(descriptor)
    if stat.S_ISREG(info.st_mode):
        return descriptor, info.st_size
    os.close(descriptor)
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise UnfitFileError(errno.EINVAL, "not a regular file", str(path))


def read_bytes(path: Path) -> bytes:
    """All of a file. Raises: OSError, also when it has more than `MAX_FILE_BYTES`.

    By system calls: `status` reads some files of each of a thousand runs, and a buffer of the limit's size
    would cost more than the reading.
    """
    descriptor, size = _open(path)
    try:
        data = os.read(descriptor, min(size, MAX_FILE_BYTES) + 1)
        while len(data) <= MAX_FILE_BYTES and (more := os.read(descriptor, 1 << 20)):
            data += more
    finally:
        os.close(descriptor)
    if len(data) > MAX_FILE_BYTES:
        raise UnfitFileError(errno.EFBIG, f"larger than {MAX_FILE_BYTES // 1024**2} MiB", str(path))
    return data


def read_text(path: Path, errors: str = "strict") -> str:
    """All of a file as UTF-8. Raises: OSError as `read_bytes` does, and UnicodeDecodeError."""
    return read_bytes(path).decode("utf-8", errors)


def parse_json(text: Union[str, bytes]) -> Any:
    """The data of a JSON text. Raises: ValueError, also for one that is nested deeper than Python follows."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("lists or objects are nested too deeply") from None


def read_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file of any size, each with its line feed, which alone ends one. Raises: OSError."""
    with open_file(path) as file:
        while line := file.readline(MAX_LINE_BYTES):
            yield line
            while len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                line = file.readline(MAX_LINE_BYTES)
