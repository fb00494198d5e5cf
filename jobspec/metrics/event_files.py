"""TensorBoard event files, read record by record: no TensorBoard needed, and a file may still be growing.

A record is its length (8 bytes), a checksum (4), the event as a protocol buffer, a checksum (4). Checksums
are not verified: a torn record shows by its length. Scalars only. Sources: TensorFlow 2.16
`core/lib/io/record_writer.h`, `core/util/event.proto`, `core/framework/{summary,tensor}.proto`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from jobspec.finding import Finding, warning
from jobspec.metrics.table import Row, Table
from jobspec.runtime.base.event_files import DamagedError, fields, varint

__all__ = ["DamagedError", "EventReader", "read_events"]

MAX_RECORD_BYTES = 256 * 1024**2  # images may be large; more is no length but damage
BLOCK_BYTES = 4 * 1024**2
HEAD_BYTES, FOOT_BYTES = 12, 4
# Numbers of fields in the messages.
WALL_TIME, STEP, SUMMARY = 1, 2, 5
SUMMARY_VALUE, TAG, SIMPLE_VALUE, TENSOR = 1, 1, 2, 8
DTYPE, SHAPE, CONTENT = 1, 2, 4
DIMENSION = 2
# Of each data type its number, its struct form, and the field that holds its values where `CONTENT` does not.
SCALARS = {1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 9: ("<q", 10)}


@dataclass
class EventReader:
    """Reads an event file piece by piece; `feed` gives the scalars of the records that are whole by then."""

    source: str = ""
    rest: bytes = field(default=b"", repr=False)

    def feed(self, data: bytes) -> Iterator[Row]:
        """Raises: DamagedError."""
        data, self.rest = self.rest + data, b""
        at = 0
        while len(data) - at >= HEAD_BYTES:
            (size,) = struct.unpack_from("<Q", data, at)
            if size > MAX_RECORD_BYTES:
                raise DamagedError(f"a record of {size} bytes")
            end = at + HEAD_BYTES + size
            if len(data) < end + FOOT_BYTES:
                break
            yield from _event(data[at + HEAD_BYTES : end], self.source)
            at = end + FOOT_BYTES
        self.rest = data[at:]


def read_events(path: Path, name: str = "") -> Table:
    """Scalars of one event file, and a warning where it is torn or damaged."""
    reader, rows = EventReader(name or str(path)), list[Row]()
    try:
        with path.open("rb") as file:
            _read(file, reader, rows)
    except OSError as why:
        return Table(tuple(rows), (_finding(reader.source, why.strerror or type(why).__name__),))
    except DamagedError as why:
        return Table(tuple(rows), (_finding(reader.source, f"damaged: {why}"),))
    torn = (_finding(reader.source, "the last record is not whole"),) if reader.rest else ()
    return Table(tuple(rows), torn)


def _read(file: BinaryIO, reader: EventReader, rows: list[Row]) -> None:
    while data := file.read(BLOCK_BYTES):
        rows.extend(reader.feed(data))


def _event(data: bytes, source: str) -> Iterator[Row]:
    time, step, summaries = 0.0, 0, list[bytes]()
    for number, value in fields(data):
        if number == WALL_TIME and isinstance(value, bytes) and len(value) == 8:
            (time,) = struct.unpack("<d", value)
        elif number == STEP and isinstance(value, int):
            step = value - 2**64 if value >= 2**63 else value
        elif number == SUMMARY and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in fields(summary):
            if number == SUMMARY_VALUE and isinstance(value, bytes):
                yield from _value(value, step, time, source)


def _value(data: bytes, step: int, time: float, source: str) -> Iterator[Row]:
    tag, scalar = "", None
    for number, value in fields(data):
        if number == TAG and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")
        elif number == SIMPLE_VALUE and isinstance(value, bytes) and len(value) == 4:
            (scalar,) = struct.unpack("<f", value)
        elif number == TENSOR and isinstance(value, bytes):
            scalar = _tensor(value)
    if tag and scalar is not None:
        yield Row(tag, step, float(scalar), time, source)


def _tensor(data: bytes) -> float | None:
    """The number of a tensor without dimensions, None for any other."""
    found = dict(fields(data))  # of a repeated field the last: a scalar has one
    kind = found.get(DTYPE)
    form, field_number = SCALARS.get(kind, ("", 0)) if isinstance(kind, int) else ("", 0)
    size = found.get(SHAPE)
    if not form or (isinstance(size, bytes) and any(number == DIMENSION for number, _ in fields(size))):
        return None
    content = found.get(CONTENT) or found.get(field_number)
    if isinstance(content, int):
        return float(content - 2**64 if content >= 2**63 else content)
    if not isinstance(content, bytes):
        return None
    if form in ("<i", "<q") and CONTENT not in found:
        value, _ = varint(content, 0)
        return float(value - 2**64 if value >= 2**63 else value)
    whole = len(content) == struct.calcsize(form)
    return float(struct.unpack(form, content)[0]) if whole else None


def _finding(source: str, why: str) -> Finding:
    what, fix = "TensorBoard events cannot be read in full", "use the metrics that were read"
    return warning("metrics.tensorboard", what, why, fix, file=source)
