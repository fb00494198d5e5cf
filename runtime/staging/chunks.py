"""Files in chunks: who reads which, what of a file is here, and what says that a chunk arrived whole.

Pure functions, and one small class that keeps its state in a file beside the part, so that a killed
run goes on with the chunks that it has. Standard library only, Python 3.9.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from typing import Any, Dict, Optional, Tuple

# Large enough that a request costs nothing beside its bytes, small enough that eight nodes share one shard.
CHUNK_BYTES = 4 << 20
MAP_SUFFIX = ".map"
_CODE_BYTES = 64
_RECORD_BYTES = 1 + _CODE_BYTES


def chunk_count(size: int) -> int:
    return -(-size // CHUNK_BYTES)


def span(size: int, number: int) -> Tuple[int, int]:
    """(offset, length) of a chunk."""
    offset = number * CHUNK_BYTES
    return offset, min(CHUNK_BYTES, size - offset)


def readers(file_id: str, number: int, nodes: int) -> Tuple[int, ...]:
    """The nodes in the order of their turn to read a chunk from shared storage; the first one reads it.

    The order depends on the arguments alone, so all nodes compute the same. A node asks only nodes before
    it, so nodes never wait for each other in a ring. Chunks that the first one leaves spread over all nodes.
    """
    first = (int(file_id[:8], 16) + number) % nodes
    turn = int(file_id[8:16], 16) + number // nodes
    rest = [(first + 1 + (turn + step) % (nodes - 1)) % nodes for step in range(nodes - 1)]
    return (first, *rest)


class _Crc:
    """zlib's crc32 with the interface of a hash."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: Any) -> None:
        self._value = zlib.crc32(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def new_code(strong: bool) -> Any:
    """A fresh code for one chunk.

    A file with a known hash needs the code only to show a bad transfer. For any other file (`strong`) the
    code alone says that the bytes are the reader's.
    """
    return hashlib.sha256() if strong else _Crc()


def code_of(path: str, offset: int, length: int, strong: bool) -> str:
    """The code of bytes on the disk. Raises: OSError."""
    code = new_code(strong)
    with open(path, "rb", buffering=0) as stream:
        stream.seek(offset)
        while length > 0:
            data = stream.read(min(length, 256 << 10))
            if not data:
                break
            code.update(data)
            length -= len(data)
    return str(code.hexdigest())


class ChunkFile:
    """What of one file is on this node's disk at `path`. Its owner's lock guards it."""

    def __init__(self, path: str, size: int, strong: bool) -> None:
        self.path = path
        self.size = size
        self.strong = strong
        self.here = bytearray(chunk_count(size))
        self.codes: Dict[int, str] = {}

    def load(self) -> None:
        """Take over what an earlier run left: chunks in its map, or a part written from its beginning.

        From now on there is a map: a part filled out of order must never look like one without a map.
        Raises: OSError.
        """
        length = os.path.getsize(self.path) if os.path.isfile(self.path) else 0
        codes = _read_map(self.path + MAP_SUFFIX)
        if codes is None:
            whole = len(self.here) if length >= self.size else length // CHUNK_BYTES
            codes = dict.fromkeys(range(whole), "")
            if len(self.here) > 1:
                with open(self.path + MAP_SUFFIX, "wb") as stream:
                    stream.write(_record("") * whole)
        for number, code in codes.items():
            if number < len(self.here) and sum(span(self.size, number)) <= length:
                self.here[number] = 1
                self.codes[number] = code

    def mark(self, number: int, code: str) -> None:
        """Note a chunk as written. Raises: OSError."""
        if len(self.here) > 1:
            fd = os.open(self.path + MAP_SUFFIX, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(fd, _record(code), number * _RECORD_BYTES)
            finally:
                os.close(fd)
        self.here[number] = 1
        self.codes[number] = code

    def forget(self) -> None:
        """Drop every chunk: none counts any more."""
        self.here = bytearray(len(self.here))
        self.codes.clear()
        drop_map(self.path)

    def complete(self, path: str) -> None:
        """All of it is at `path`, verified."""
        self.path = path
        self.here[:] = b"\1" * len(self.here)

    def prefix(self, offset: int) -> int:
        """How many bytes are here without a gap from `offset` on, up to the end of a few chunks."""
        number, end = offset // CHUNK_BYTES, offset
        while number < len(self.here) and self.here[number] and end - offset < 2 * CHUNK_BYTES:
            end = sum(span(self.size, number))
            number += 1
        return end - offset


def _record(code: str) -> bytes:
    """The record of a present chunk; without a code the node that gives it away computes one."""
    return b"\1" + code.encode().ljust(_CODE_BYTES)


def drop_map(part: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part + MAP_SUFFIX)


def to_prefix(part: str) -> None:
    """Cut a part with gaps to the bytes before the first, for a reader that goes from front to back."""
    codes = _read_map(part + MAP_SUFFIX)
    if codes is None:
        return
    whole = 0
    while whole in codes:
        whole += 1
    with contextlib.suppress(FileNotFoundError):
        os.truncate(part, min(whole * CHUNK_BYTES, os.path.getsize(part)))
    drop_map(part)


def _read_map(path: str) -> Optional[Dict[int, str]]:
    """Chunk number -> code of the chunks that a map names; None without a map."""
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except FileNotFoundError:
        return None
    codes = {}
    for number in range(len(data) // _RECORD_BYTES):
        record = data[number * _RECORD_BYTES : (number + 1) * _RECORD_BYTES]
        if record[0] == 1:
            codes[number] = record[1:].decode("ascii", "replace").strip()
    return codes
