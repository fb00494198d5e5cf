"""The number of rows of a parquet file, from its footer alone: no library, no data.

Source: Apache Parquet's `FileMetaData` (field 3 is `num_rows`), in Thrift's compact protocol.
"""

from __future__ import annotations

from pathlib import Path

MAGIC = b"PAR1"
MAX_FOOTER = 64 * 1024**2
NUM_ROWS = 3
# Types of fields; maps do not occur.
BOOLS, BYTE, INTS, DOUBLE, BINARY, LISTS, STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 12


def row_count(path: Path) -> int | None:
    """None when the file cannot be read or is no parquet file of this kind."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 8))
            tail = file.read(8)
            length = int.from_bytes(tail[:4], "little")
            if tail[4:] != MAGIC or not 0 < length <= min(MAX_FOOTER, size - 8):
                return None
            file.seek(size - 8 - length)
            return _Reader(file.read(length)).number_of_field(NUM_ROWS)
    except (OSError, IndexError, ValueError, RecursionError):
        return None


class _Reader:
    """Walks one Thrift struct and skips what nobody asks for.

    Raises: IndexError or ValueError when it is torn.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._delta = 0  # of the last field's number; 0: the number itself follows

    def number_of_field(self, wanted: int) -> int | None:
        """The integer in field `wanted` of the struct that starts here; None when it has none."""
        field = 0
        while kind := self._field_kind():
            field = field + self._delta if self._delta else self._signed()
            if field == wanted:
                return self._signed() if kind in INTS else None
            self._skip(kind)
        return None

    def _field_kind(self) -> int:
        head = self._byte()
        self._delta = head >> 4
        return head & 15

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def _signed(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _skip(self, kind: int, in_list: bool = False) -> None:
        """A field's value; a boolean field has it in its head, a boolean in a list is a byte."""
        if kind in BOOLS:
            self._at += in_list
        elif kind == BYTE:
            self._at += 1
        elif kind in INTS:
            self._varint()
        elif kind == DOUBLE:
            self._at += 8
        elif kind == BINARY:
            length = self._varint()
            self._at += length
        elif kind in LISTS:
            head = self._byte()
            count = self._varint() if head >> 4 == 15 else head >> 4
            for _ in range(count):
                self._skip(head & 15, in_list=True)
        elif kind == STRUCT:
            while inner := self._field_kind():
                if not self._delta:
                    self._signed()
                self._skip(inner)
        else:
            raise ValueError(f"a field of kind {kind}, which the footer has not")
