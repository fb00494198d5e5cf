"""Times in log lines."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

# ISO 8601 and its log forms: `2026-08-22 10:44:12,113`, `2026-08-22T10:44:12.113+0200`, `...Z`.
ISO_TIME = re.compile(
    r"\b(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6})\d*)?\s?(?:(Z)|([+-]\d\d):?(\d\d)\b)?"
)


def find_time(line: str) -> float | None:
    """Seconds since the epoch of the first time in `line`, or None.

    A time without a zone is taken as UTC: logs of one job share a zone, and only their order matters.
    """
    found = ISO_TIME.search(line)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    micro = int((found[7] or "0").ljust(6, "0"))
    try:
        zone = _zone(found[9], found[10]) if found[9] else UTC
        return datetime(year, month, day, hour, minute, second, micro, zone).timestamp()
    except ValueError:
        return None  # digits that only look like a time


def _zone(hours: str, minutes: str) -> timezone:
    """Raises: ValueError for an offset of a day or more."""
    return timezone(timedelta(hours=int(hours), minutes=int(hours[0] + minutes)))
