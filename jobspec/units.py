"""Times, sizes and paths as people and Slurm write them. Pure: no look at a disk."""

from __future__ import annotations

import re
import time
from pathlib import PurePosixPath

GIB = 1024**3
_YEAR_10000 = 253_402_300_800  # in seconds since the epoch
_BYTES = {"": 1024**2, "K": 1024, "M": 1024**2, "G": GIB, "T": 1024**4}


def parse_time(text: str) -> int:
    """Seconds of a Slurm time: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S.

    Raises: ValueError for anything else. Source: sbatch(1), `--time`.
    """
    if not re.fullmatch(r"(\d+-)?\d+(:\d{1,2}){0,2}", text):
        raise ValueError(f"`{text}` is no time: write D-HH:MM:SS, HH:MM:SS, MM:SS or minutes")
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:
        hours, (minutes, seconds) = 0, (*parts, 0)[:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def parse_patience(text: str) -> int | None:
    """Seconds of `30s`, `10m` or `2h`; None for `auto`."""
    return None if text == "auto" else int(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def slurm_time(seconds: int) -> str:
    """Slurm's own notation, D-HH:MM:SS."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{day}-{hour:02}:{minute:02}:{second:02}"


def parse_bytes(text: str) -> int:
    """Bytes of `500M`, `2G`, `64` (mebibytes, as in Slurm). Raises: ValueError for anything else."""
    match = re.fullmatch(r"(\d+)([KMGT]?)", text)
    if not match:
        raise ValueError(f"`{text}` is no size: write a number and K, M, G or T")
    return int(match[1]) * _BYTES[match[2]]


def gib(size: float, digits: int = 0) -> str:
    """Bytes as people say them of memory and disks: `140 GiB`, `139.8 GiB`."""
    return f"{size / GIB:.{digits}f} GiB"


def duration(seconds: float) -> str:
    """A time span as people say it: `0.4 s`, `2 min 05 s`, `3 h 20 min`, `4 d 2 h`.

    >>> duration(125)
    '2 min 05 s'
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_rest = divmod(minutes, 60)
    if hours == 0:
        return f"{minutes} min {rest:02d} s"
    days, hours_rest = divmod(hours, 24)
    return f"{hours} h {minutes_rest:02d} min" if days == 0 else f"{days} d {hours_rest} h"


def is_date(seconds: float) -> bool:
    """Whether these seconds since the epoch are of the years 1970 to 9999; NaN is not."""
    return 0 <= seconds < _YEAR_10000


def utc(seconds: float) -> str:
    """A moment for people, to the minute.

    >>> utc(0)
    '1970-01-01 00:00 UTC'
    """
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def figure(value: float) -> str:
    """A measured value for people: four significant digits, and no exponent where digits are as short.

    >>> figure(10663.2), figure(0.98214), figure(2.0491e-08)
    ('10663', '0.9821', '2.049e-08')
    """
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.4g}"


def is_below(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies in it, by text alone: links and `..` are not followed."""
    return PurePosixPath(path).is_relative_to(folder)
