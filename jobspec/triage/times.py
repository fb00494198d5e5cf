"""Times in log lines: ISO 8601 and the forms of glog, vLLM, syslog, `date` and the US.

All are pure functions of a line. A time without a zone counts as UTC: logs of one job share a zone, and only
their order matters. A time without a year gets the latest year that puts it before `latest`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from functools import cached_property

_CLOCK = r"(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6})\d*)?"
CLOCK = re.compile(rb"\d\d:\d\d:\d\d")  # part of each form
MAX_LINE_BYTES = 4000  # of a line, searched for a time
CLOSE = 10  # lines that are looked at before all are
_MONTHS = {name: number for number, name in enumerate(
    ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1)}  # fmt: skip
_MONTH = "|".join(_MONTHS)

# `2026-08-22 10:44:12,113`, `2026-08-22T10:44:12.113+0200`, `2026/08/22 10:44:12`, `...Z`.
ISO_TIME = re.compile(
    r"(?<!\d)(\d{4})([-/])(\d\d)\2(\d\d)[T _]" + _CLOCK + r"\s?(?:(Z)|([+-]\d\d):?(\d\d)(?!\d))?"
)
# Part of each of them, and found in a long text tenfold faster.
ISO_PART = re.compile(rb"[-/]\d\d[-/]\d\d[T _]\d\d:")
# `E0822 10:44:12.113 4711 file.cc:12]` and PyTorch's `[E822 10:44:12.113 file.cpp:12]`. Source: glog, c10.
GLOG_TIME = re.compile(r"(?<![A-Za-z0-9])[IWEFCV](\d{1,2})(\d\d) " + _CLOCK)
# `ERROR 08-22 10:44:12 [core.py:700]`. Source: vLLM 0.6 to 0.11, `vllm/logger.py`.
VLLM_TIME = re.compile(r"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d)-(\d\d) " + _CLOCK)
# `08/22/2026 10:44:12 - INFO`, the format of many Hugging Face scripts: month first.
US_TIME = re.compile(r"(?<![\d/])(\d\d)/(\d\d)/(\d{4}),? " + _CLOCK)
# `Sat Aug 22 10:44:12 2026`, `Sat Aug 22 10:44:12 UTC 2026`, and syslog's `Aug 22 10:44:12` without a year.
DATE_TIME = re.compile(rf"\b({_MONTH}) ([ \d]\d) {_CLOCK}(?: (?:[A-Z]{{3,5}} )?(\d{{4}})\b)?")

# `14:02:05    INFO `, `[14:02:05] `: loguru and rich as prime-rl and others set them up.
_CLOCK_HEAD = re.compile(r"^\W{0,2}([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:[.,]\d+)?\]?\s+(?=\S)")


def find_time(line: str, latest: float | None = None) -> float | None:
    """Seconds since the epoch of the first time in `line`, or None.

    `latest` is the time at which the log was last written. Without it, forms without a year are not read.
    """
    hits = [(match.start(), read, match) for pattern, read in _FORMS if (match := pattern.search(line))]
    for _, read, match in sorted(hits, key=lambda item: item[0]):
        try:
            time = read(match, latest)
        except ValueError:
            continue  # digits that only look like a time
        if time is not None:
            return time
    return None


def clock_of(line: str) -> float | None:
    """Seconds since midnight of a clock without a date at the head of the line."""
    match = _CLOCK_HEAD.search(line)
    return 3600.0 * int(match[1]) + 60.0 * int(match[2]) + int(match[3]) if match is not None else None


@dataclass
class LineTimes:
    """Which time the lines around a line tell. A log without times is searched for a clock but once."""

    lines: Sequence[bytes]
    latest: float | None = None
    read: dict[int, float | None] = field(default_factory=dict)

    def near(self, offset: int, before: int, after: int) -> float | None:
        """The time on the line, else on the nearest line with a time, first before it, then after it."""
        close = range(offset, max(-1, offset - min(before, CLOSE)), -1)
        time = self._first(at for at in close if CLOCK.search(self.lines[at]))
        if time is not None:
            return time
        place = bisect_right(self.clocks, offset)
        above = (at for at in reversed(self.clocks[:place]) if at > offset - before)
        below = (at for at in self.clocks[place:] if at < offset + after)
        return self._first((*above, *below))

    def below(self, offset: int, after: int) -> float | None:
        """The time on the nearest line with a time after a line that tells none."""
        if self._first((offset,)) is not None:
            return None
        close = range(offset + 1, min(offset + after, len(self.lines)))
        return self._first(at for at in close if CLOCK.search(self.lines[at]))

    @cached_property
    def clocks(self) -> list[int]:
        """The lines that may tell a time."""
        return [at for at, line in enumerate(self.lines) if CLOCK.search(line)]

    def _first(self, places: Iterable[int]) -> float | None:
        for at in places:
            if at not in self.read:
                text = self.lines[at][:MAX_LINE_BYTES].decode("utf-8", "replace")
                self.read[at] = find_time(text, self.latest)
            if (time := self.read[at]) is not None:
                return time
        return None


def _iso(match: re.Match[str], latest: float | None) -> float | None:
    year, _, month, day, *clock, utc, hours, minutes = match.groups()
    zone = UTC if utc or not hours else _zone(hours, minutes)
    return _stamp(int(year), int(month), int(day), clock, zone)


def _glog(match: re.Match[str], latest: float | None) -> float | None:
    month, day, *clock = match.groups()
    return _without_year(int(month), int(day), clock, latest)


def _us(match: re.Match[str], latest: float | None) -> float | None:
    month, day, year, *clock = match.groups()
    return _stamp(int(year), int(month), int(day), clock)


def _date(match: re.Match[str], latest: float | None) -> float | None:
    month, day, *clock, year = match.groups()
    if year:
        return _stamp(int(year), _MONTHS[month], int(day), clock)
    return _without_year(_MONTHS[month], int(day), clock, latest)


def _without_year(month: int, day: int, clock: Sequence[str | None], latest: float | None) -> float | None:
    if latest is None:
        return None
    # A day's grace: `latest` is in UTC, the log perhaps not.
    last = datetime.fromtimestamp(latest, UTC) + timedelta(days=1)
    time = _stamp(last.year, month, day, clock)
    return time if time <= last.timestamp() else _stamp(last.year - 1, month, day, clock)


def _stamp(year: int, month: int, day: int, clock: Sequence[str | None], zone: timezone = UTC) -> float:
    """Raises: ValueError for what is no time."""
    hour, minute, second = (int(part or 0) for part in clock[:3])
    micro = int((clock[3] or "0").ljust(6, "0"))
    return datetime(year, month, day, hour, minute, second, micro, zone).timestamp()


def _zone(hours: str, minutes: str) -> timezone:
    """Raises: ValueError for an offset of a day or more."""
    return timezone(timedelta(hours=int(hours), minutes=int(hours[0] + minutes)))


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], float | None], float | None]], ...] = (
    (ISO_TIME, _iso),
    (GLOG_TIME, _glog),
    (VLLM_TIME, _glog),
    (US_TIME, _us),
    (DATE_TIME, _date),
)
