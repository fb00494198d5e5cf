"""Unpacks gzip in bounds: some kilobytes can hold gigabytes that no program ever printed."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import BinaryIO, cast

from jobspec.finding import Finding, warning

FREE_BYTES = 64 * 1024**2  # of a file: text that repeats itself is small when it is packed
MAX_RATIO = 500  # beyond; gzip reaches 1032 where one byte repeats, and logs are near 20
MAX_TOTAL = 4 * 1024**3  # over all files of one call
MIB = 1024**2
PIECE = 8192  # read ahead, which the ratio counts


@dataclass
class Budget:
    """How many bytes all files together may still have."""

    left: int = MAX_TOTAL


class _Counted:
    """A stream that knows how much was read of it; a pipe has no `tell`."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(PIECE if size < 0 else min(size, PIECE))
        self.count += len(data)
        return data


class Gunzip(gzip.GzipFile):
    """The text of a packed stream, by `read1`. It ends early at a bound, which `cut` then names."""

    def __init__(self, packed: BinaryIO, budget: Budget) -> None:
        self._packed = _Counted(packed)
        self._budget = budget
        self._size = 0
        self.cut = ""
        super().__init__(fileobj=cast(BinaryIO, self._packed), mode="rb")

    def read1(self, size: int = -1) -> bytes:
        if self.cut:
            return b""
        data = super().read1(MIB if size < 0 else min(size, MIB))
        self._size += len(data)
        self._budget.left -= len(data)
        if self._budget.left < 0:
            self.cut = f"all packed logs together hold more than {MAX_TOTAL // MIB} MiB"
        elif self._size > FREE_BYTES and self._size > MAX_RATIO * self._packed.count:
            self.cut = f"it holds more than {MAX_RATIO} times its size"
        return data

    @property
    def megabytes(self) -> int:
        return self._size // MIB


def left_out(stream: BinaryIO, name: str) -> list[Finding]:
    """The finding for a stream of which not all was read; none for any other stream."""
    if not isinstance(stream, Gunzip) or not stream.cut:
        return []
    what = f"only the first {stream.megabytes} MiB of `{name}` were read"
    fix = "unpack the file and name what comes out; until then the rest counts as not proved"
    return [warning("file.bomb", what, stream.cut, fix, file=name)]
