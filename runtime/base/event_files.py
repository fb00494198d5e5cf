"""TensorBoard's event files, read piece by piece, without TensorBoard or protobuf. Scalars only.

A file is a row of records: length (8 bytes, little endian), checksum (4), one `Event` as a protocol buffer,
checksum (4). Checksums (CRC32C, which the standard library lacks) are not compared: a torn record shows by
its length. Sources: TensorFlow 2.16 `core/lib/io/record_writer.h`, `core/util/event.proto`,
`core/framework/{summary,tensor}.proto`; wire format: protobuf.dev, "Encoding".
"""

from __future__ import annotations

import struct
from typing import Dict, Iterator, List, Optional, Tuple, Union

from jobspec.runtime.base.metric_files import Row

MAX_RECORD_BYTES = 256 * 1024**2  # images may be large; more is no length but damage
HEAD_BYTES, FOOT_BYTES = 12, 4
# Numbers of fields in the messages of an event file.
WALL_TIME, STEP, SUMMARY = 1, 2, 5
SUMMARY_VALUE, TAG, SIMPLE_VALUE, TENSOR = 1, 1, 2, 8
DTYPE, SHAPE, CONTENT = 1, 2, 4
DIMENSION = 2
# Number of a data type -> its struct format, and the field of its values where `CONTENT` does not hold them.
SCALARS = {1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 9: ("<q", 10)}
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types


class DamagedError(ValueError):
    """The bytes are not what the format says; what follows in the file cannot be found."""


class EventDecoder:
    """Scalars of an event file; `damage` says why no more can be read, `rest` is a record not whole yet."""

    def __init__(self, source: str = "", damage: str = "") -> None:
        self.damage = damage
        self.rest = b""
        self._source = source

    def feed(self, data: bytes) -> List[Row]:
        """The scalars of the records that are whole by now."""
        rows: List[Row] = []
        if self.damage:
            return rows
        try:
            for record in self._records(data):
                rows.extend(_event(record, self._source))
        except DamagedError as why:
            self.damage, self.rest = str(why), b""
        return rows

    def _records(self, data: bytes) -> Iterator[bytes]:
        data, self.rest = self.rest + data, b""
        at = 0
        while len(data) - at >= HEAD_BYTES:
            (size,) = struct.unpack_from("<Q", data, at)
            if size > MAX_RECORD_BYTES:
                raise DamagedError(f"a record of {size} bytes")
            end = at + HEAD_BYTES + size
            if len(data) < end + FOOT_BYTES:
                break
            yield data[at + HEAD_BYTES : end]
            at = end + FOOT_BYTES
        self.rest = data[at:]


def _event(data: bytes, source: str) -> Iterator[Row]:
    time, step, summaries = 0.0, 0, []
    for number, value in fields(data):
        if number == WALL_TIME and isinstance(value, bytes) and len(value) == 8:
            (time,) = struct.unpack("<d", value)
        elif number == STEP and isinstance(value, int):
            step = _signed(value)
        elif number == SUMMARY and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in fields(summary):
            if number == SUMMARY_VALUE and isinstance(value, bytes):
                tag, scalar = _scalar(value)
                if tag and scalar is not None:
                    yield Row(tag, step, scalar, time, source)


def _scalar(data: bytes) -> Tuple[str, Optional[float]]:
    tag, scalar = "", None
    for number, value in fields(data):
        if number == TAG and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")
        elif number == SIMPLE_VALUE and isinstance(value, bytes) and len(value) == 4:
            scalar = float(struct.unpack("<f", value)[0])
        elif number == TENSOR and isinstance(value, bytes):
            scalar = _tensor(value)
    return tag, scalar


def _tensor(data: bytes) -> Optional[float]:
    """The number of a tensor without dimensions, None for any other."""
    values: Dict[int, Union[int, bytes]] = dict(
        fields(data)
    )  # of a repeated field the last: a scalar has one
    kind = values.get(DTYPE)
    form, own_field = SCALARS.get(kind, ("", 0)) if isinstance(kind, int) else ("", 0)
    shape = values.get(SHAPE)
    if not form or (isinstance(shape, bytes) and any(number == DIMENSION for number, _ in fields(shape))):
        return None
    content = values.get(CONTENT) or values.get(own_field)
    if isinstance(content, int):
        return float(_signed(content))
    if not isinstance(content, bytes):
        return None
    if form in ("<i", "<q") and CONTENT not in values:
        return float(_signed(_varint(content, 0)[0]))
    whole = len(content) == struct.calcsize(form)
    return float(struct.unpack(form, content)[0]) if whole else None


def fields(data: bytes) -> Iterator[Tuple[int, Union[int, bytes]]]:
    """Field numbers and values of a message: an int for a varint, else the bytes. Raises: DamagedError."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == BYTES:
            size, at = _varint(data, at)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise DamagedError(f"wire type {kind}")
        if at + size > len(data):
            raise DamagedError("a field is longer than its message")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> Tuple[int, int]:
    """A number of the wire format, and the offset behind it. Raises: DamagedError when it does not end."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise DamagedError("a number has no end")


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
