"""The nearest time of a line against a plain walk over all lines."""

from __future__ import annotations

import random

import pytest

from jobspec.triage.sources import MOST_RUN_S, end_by_date
from jobspec.triage.times import LineTimes, find_time

LINES = (b"loss 1", b"took 00:10:00", b"2026-13-99 10:00:00 x", b"", b"00:00:00" * 9)
LATEST = 1.8e9


def plainly(lines: list[bytes], offset: int, before: int, after: int) -> float | None:
    above = range(offset, max(-1, offset - before), -1)
    below = range(offset + 1, min(len(lines), offset + after))
    times = (find_time(lines[at].decode(), LATEST) for at in (*above, *below))
    return next((time for time in times if time is not None), None)


@pytest.mark.parametrize("seed", range(30))
def test_nearest_time_is_that_of_a_plain_walk(seed: int) -> None:
    draw = random.Random(seed)
    timed = draw.choice([0.0, 0.02, 0.3])
    lines = [
        b"2026-08-22 10:%02d:00 INFO" % (at % 60) if draw.random() < timed else draw.choice(LINES)
        for at in range(150)
    ]
    times = LineTimes(lines, LATEST)
    for before, after in ((60, 15), (5, 3), (200, 200)):
        for offset in range(len(lines)):
            assert times.near(offset, before, after) == plainly(lines, offset, before, after)


@pytest.mark.parametrize(
    "date",
    [
        "2026-08-22 10:44:12,113",
        "2026-08-22T10:44:12.113+0200",
        "2026/08/22 10:44:12",
        "2026-08-22_10:44:12Z",
    ],
)
def test_the_first_date_in_a_log_tells_its_end(date: str) -> None:
    head = f"a/1 b-2 10:44:12 08-22 10:44:12\n[{date}] step 1\n[2027-01-01 00:00:00] step 2\n"
    time = find_time(date)
    assert time is not None and end_by_date(head.encode()) == [time + MOST_RUN_S]
    assert end_by_date(b"08-22 10:44:12 step 1 of 10/20/30\n") == []
