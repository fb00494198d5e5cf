"""Reads the files of metrics: finds them, decodes JSON lines, and follows a file as it grows.

Report, `status` and the watch over a run read through this module and `event_files`: all three see the same.
A decoder takes the next bytes of a file and returns the rows that are complete. No decoder raises.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import (
    Any,
    Callable,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Tuple,
)

from jobspec.runtime.base.run_files import MAX_LINE_BYTES, open_file

LINES, DUMP, EVENTS = "JSON lines", "JSON dump", "event file"
TABLE, SERIES, HISTORY = "CSV table", "MLflow series", "wandb history"
SERIES_FOLDER = "metrics"  # MLflow keeps one file for each metric below a folder of this name
STEP_KEYS = (
    "step", "train_step", "global_step", "training/global_step", "train/global_step", "trainer/global_step",
    "global_steps", "iteration", "current_steps", "_step",
)  # fmt: skip
TIME_KEYS = ("time", "wall_time", "timestamp", "_timestamp")
NO_METRICS = frozenset({*STEP_KEYS, *TIME_KEYS})
GROUP_MARK = "@"
MAX_TORN = 5  # of one file: the sixth torn line says nothing new
MAX_READ_BYTES = 64 * 1024**2  # of one file and look


class Row(NamedTuple):
    """One value of one metric.

    `step` is None where the source names none. `wall_time` is seconds since the epoch or None.
    `value` is NaN where a program wrote `null`: logged, but not a number. `source` is a file as the
    reader was given it and `line` counts from 1, 0 where the source has no lines.
    """

    metric: str
    step: Optional[int]
    value: float
    wall_time: Optional[float] = None
    source: str = ""
    line: int = 0


def by_step(rows: Sequence[Row]) -> Sequence[Row]:
    """One metric's points by step; the later of two rows with one step stays, as after a resume.

    Where a row has no step, every row is a point of its own, in the order of the files.
    """
    if any(row.step is None for row in rows):
        return rows
    latest = {row.step: row for row in rows}
    return sorted(latest.values(), key=lambda row: row.step or 0)


def files_below(folder: Path) -> List[Path]:
    """All files below `folder`, sorted; no link to a folder is followed, and a failed listing is no error."""
    return sorted(Path(base, name) for base, _, names in os.walk(folder) for name in names)


def kind_of(path: Path) -> str:
    """One of the kinds above, by the file's name; empty for a file without metrics."""
    kinds = {".jsonl": LINES, ".json": DUMP, ".csv": TABLE, ".tsv": TABLE, ".wandb": HISTORY}
    if path.suffix in kinds or "tfevents" in path.name:
        return kinds.get(path.suffix, EVENTS)
    return SERIES if SERIES_FOLDER in path.parts[:-1] else ""


def group_prefix(path: Path, folder: Path) -> str:
    """`NAME/` for a file below `folder/@NAME`, else empty; it goes before the names of its metrics.

    Several trainings of one run log the same names: what lies below a folder `@NAME` is NAME's.
    """
    first, *below = path.relative_to(folder).parts
    grouped = below and first.startswith(GROUP_MARK) and first != GROUP_MARK
    return f"{first[len(GROUP_MARK) :]}/" if grouped else ""


class LineDecoder:
    """Metrics of JSON lines, ours or verl's file logger.

    Ours are `{"step": 1, "time": 1.7e9, "loss": 0.3}`, verl's `{"step": 1, "data": {"loss": 0.3}}`. `NaN`,
    `Infinity` and `null` are values. Source: verl `utils/tracking.py`, FileLogger. `torn` has the numbers of
    the first lines that are not whole JSON.
    """

    def __init__(self, source: str = "") -> None:
        self.torn: List[int] = []
        self._source = source
        self._lines = 0
        self._rest = b""

    def feed(self, data: bytes) -> List[Row]:
        """The rows of the lines that have their end by now."""
        *lines, rest = (self._rest + data).split(b"\n")
        # No JSON begins with NUL, as a hole of a sparse file does: the line counts as torn, and is not kept.
        self._rest = b"\0" if rest.startswith(b"\0") or len(rest) > MAX_LINE_BYTES else rest
        rows: List[Row] = []
        for line in lines:
            self._lines += 1
            line_rows = self._rows(line, self._lines)
            if line_rows is None and len(self.torn) < MAX_TORN:
                self.torn.append(self._lines)
            rows.extend(line_rows or ())
        return rows

    def last(self) -> List[Row]:
        """The rows of a last line that has no end yet; they count as soon as its JSON is whole."""
        return self._rows(self._rest, self._lines + 1) or []

    def close(self) -> List[Row]:
        """The rows of the last line, where no more bytes follow."""
        return self.feed(b"\n")

    def _rows(self, line: bytes, number: int) -> Optional[List[Row]]:
        if not line.strip():
            return []
        try:
            data = json.loads(line)
            return list(record_rows(data, self._source, number)) if isinstance(data, dict) else []
        except (ValueError, RecursionError):
            return None


def record_rows(data: Mapping[str, Any], source: str = "", line: int = 0) -> Iterator[Row]:
    """The values of one logged record; its step and time stand among them."""
    step = next((data[key] for key in STEP_KEYS if _is_step(data.get(key))), None)
    time = next((float(data[key]) for key in TIME_KEYS if is_number(data.get(key))), None)
    inner = data.get("data")
    values = inner if isinstance(inner, dict) else data
    for metric, value in _flat(values, ""):
        if values is not data or metric not in NO_METRICS:
            yield Row(metric, None if step is None else int(step), value, time, source, line)


def _flat(data: Mapping[str, Any], prefix: str) -> Iterator[Tuple[str, float]]:
    """Numbers of nested objects, their names joined by `/`; `null` is NaN, text and lists are left out."""
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}/")
        elif value is None or is_number(value):
            yield f"{prefix}{key}", float("nan") if value is None else float(value)


def is_number(value: object) -> bool:
    """Whether a float can hold `value`: JSON has integers of any length, and `true` is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return isinstance(value, float) or abs(value) < 2**1000


def _is_step(value: object) -> bool:
    """Whether `value` is a whole number; `3.5` under such a name is an epoch or a time."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return (isinstance(value, int) or value.is_integer()) and abs(value) < 2**53


class Decoder(Protocol):
    def feed(self, data: bytes) -> Iterable[Row]: ...


class Tail:
    """The rows that are added to one file, look by look; a file that became shorter is read as a new one.

    `make` gives the file's decoder; its argument says that the first bytes may stand inside a line or record.
    `only_end` bounds a look: of more unread bytes, the look reads only the last ones. `changed` says whether
    the last look read new bytes, `anew` whether these do not follow the earlier ones.
    """

    def __init__(self, path: Path, make: Callable[[bool], Decoder], only_end: int = 0) -> None:
        self.changed = self.anew = False
        self._path = path
        self._make = make
        self._decoder = make(False)
        self._only_end = only_end
        self._offset = 0

    def read(self) -> List[Row]:
        """What is new since the last look; nothing where the file cannot be read."""
        self.changed = self.anew = False
        try:
            with open_file(self._path) as file:
                size = file.seek(0, os.SEEK_END)
                self._place(size)
                file.seek(self._offset)
                # Never more than is there: a buffer of the limit's size would cost more than the reading.
                data = file.read(min(size - self._offset, self._only_end or MAX_READ_BYTES))
        except OSError:
            return []
        self._offset += len(data)
        self.changed = bool(data) or self.anew
        return list(self._decoder.feed(data))

    def last(self) -> List[Row]:
        """The rows of a last JSON line that is whole but for its line end."""
        return self._decoder.last() if isinstance(self._decoder, LineDecoder) else []

    def _place(self, size: int) -> None:
        skips = 0 < self._only_end < size - self._offset
        if skips or size < self._offset:
            self.anew = True
            self._offset = max(0, size - self._only_end) if self._only_end else 0
            self._decoder = self._make(self._offset > 0)
