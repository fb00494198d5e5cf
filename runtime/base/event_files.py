"""Scalars of TensorBoard event files, read as they grow, without TensorBoard or protobuf.

A file is a row of TFRecords: length (8 bytes, little endian), its checksum (4), the data, its checksum (4).
Source: tensorflow `core/lib/io/record_writer.h`. The data is one `Event` message; of it, `Summary`, `Value`
and `TensorProto` only the fields below are read. Source: tensorflow `core/util/event.proto` and
`core/framework/{summary,tensor}.proto`; wire format: protobuf.dev, "Encoding". Checksums (CRC32C, which the
standard library lacks) are not compared: a wrong length leads to data that is no `Event` and gives nothing.
"""

from __future__ import annotations

import struct
from typing import Iterator, Optional, Tuple

Scalar = Tuple[str, int, float]  # tag, step, value
HEAD_BYTES, TAIL_BYTES = 12, 4
MAX_RECORD_BYTES = 64 * 1024**2  # images and histograms are some MB; more is a damaged length
STEP, SUMMARY = 2, 5  # fields of Event
VALUE = 1  # of Summary
TAG, SIMPLE_VALUE, TENSOR = 1, 2, 8  # of Value
DTYPE, CONTENT, FLOATS, DOUBLES = 1, 4, 5, 6  # of TensorProto
FORMATS = {1: "<f", 2: "<d"}  # DT_FLOAT, DT_DOUBLE
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class DamagedError(ValueError):
    """The bytes are not what the format says; what follows in the file cannot be found."""


def records(data: bytes) -> Iterator[Tuple[int, bytes]]:
    """Whole records, each with the offset behind it; a record that is still being written ends the row.

    Raises: DamagedError for a length that no record has.
    """
    at = 0
    while at + HEAD_BYTES <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        if length > MAX_RECORD_BYTES:
            raise DamagedError(f"a record of {length} bytes at {at}")
        end = at + HEAD_BYTES + length + TAIL_BYTES
        if end > len(data):
            return
        yield end, data[at + HEAD_BYTES : end - TAIL_BYTES]
        at = end


def scalars(record: bytes) -> Iterator[Scalar]:
    """The scalars of one `Event`. Raises: DamagedError when it is none."""
    step, summaries = 0, []
    for number, value in fields(record):
        if number == STEP and isinstance(value, int):
            step = value
        elif number == SUMMARY and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in fields(summary):
            if number == VALUE and isinstance(value, bytes):
                found = _scalar(value)
                if found is not None:
                    yield found[0], step, found[1]


def _scalar(data: bytes) -> Optional[Tuple[str, float]]:
    tag, number = "", None
    for field, value in fields(data):
        if field == TAG and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")
        elif field == SIMPLE_VALUE and isinstance(value, bytes) and len(value) == 4:
            (number,) = struct.unpack("<f", value)
        elif field == TENSOR and isinstance(value, bytes):
            number = _tensor(value)
    return (tag, float(number)) if tag and number is not None else None


def _tensor(data: bytes) -> Optional[float]:
    """A tensor of exactly one float; None for every other one."""
    kind, content = 0, b""
    for number, value in fields(data):
        if number == DTYPE and isinstance(value, int):
            kind = value
        elif number in (CONTENT, FLOATS, DOUBLES) and isinstance(value, bytes):
            content = value
    layout = FORMATS.get(kind)
    if layout is None or len(content) != struct.calcsize(layout):
        return None
    return float(struct.unpack(layout, content)[0])


def fields(data: bytes) -> Iterator[Tuple[int, object]]:
    """Field numbers and values of a message: an int for a varint, else the bytes. Raises: DamagedError."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == VARINT:
            value, at = varint(data, at)
            yield key >> 3, value
            continue
        if kind == BYTES:
            size, at = varint(data, at)
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise DamagedError(f"wire type {kind}")
        if at + size > len(data):
            raise DamagedError("a field is longer than its message")
        yield key >> 3, data[at : at + size]
        at += size


def varint(data: bytes, at: int) -> Tuple[int, int]:
    """A number of the wire format, and the offset behind it. Raises: DamagedError when it does not end."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise DamagedError("a number has no end")
