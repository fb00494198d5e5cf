"""The logs that are scanned: where they lie, how they are opened, and the year that they are of."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from jobspec.log_search import take
from jobspec.triage.gunzip import Budget, Gunzip
from jobspec.triage.times import ISO_PART, ISO_TIME, find_time

GZIP_MAGIC = b"\x1f\x8b"
DATE_BYTES = 64 * 1024  # at the start of a log, searched for a date before any log is read
MOST_RUN_S = 300 * 86400.0


class LogSource(NamedTuple):
    """A log to scan: its path, its name in a match, the node that wrote it, and the seconds by which that
    node's clock is ahead."""

    path: Path
    name: str = ""
    node: str = ""
    ahead_s: float = 0.0


def latest_end(sources: Iterable[LogSource]) -> float | None:
    """When logs that were written together end at the latest, by the date in one of them: a log beside it may
    have times without a year."""
    found = list[float]()
    for source in sources:
        with suppress(OSError, EOFError):
            if source.path.is_file():
                with source.path.open("rb") as stream:
                    found += end_by_date(take(unpacked(stream), DATE_BYTES))
    return max(found, default=None)


def end_by_date(head: bytes) -> list[float]:
    """The same by the first date in a log's first bytes, if there is one."""
    date = ISO_TIME.search(head.decode("utf-8", "replace")) if ISO_PART.search(head) else None
    time = find_time(date[0]) if date is not None else None
    return [time + MOST_RUN_S] if time is not None else []


def unpacked(stream: BinaryIO, budget: Budget | None = None) -> BinaryIO:
    """The stream, decompressed if it is gzip. Peeks at the first bytes: a pipe gives them only once."""
    if not isinstance(stream, BufferedReader) or stream.peek(2)[:2] != GZIP_MAGIC:
        return stream
    return cast(BinaryIO, Gunzip(stream, budget or Budget()))
