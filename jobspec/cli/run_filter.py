"""Which runs a listing shows: the options, and whether a run fits them."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

from jobspec.finding import fail
from jobspec.runs.store import Found
from jobspec.words import did_you_mean, one_of

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
NOT_STARTED = "not started"
OF_DATA = ("state", "verdict", "framework", "level", "cluster")


def add_filters(into: argparse.ArgumentParser) -> None:
    into.add_argument("--name", metavar="NAME", help="runs of this name; `*` and `?` stand for any text")
    into.add_argument("--state", metavar="STATE", help="in this state, such as running or failed")
    into.add_argument("--verdict", metavar="VERDICT", help="pass, fail, blocked, nothing ran, or none yet")
    into.add_argument("--framework", metavar="NAME", help="of this framework")
    into.add_argument("--level", metavar="LEVEL", help="of this coverage level, by name")
    into.add_argument("--cluster", metavar="NAME", help="on this cluster")
    into.add_argument(
        "--since", metavar="WHEN", help="rendered since 2026-11-29 (UTC), or within 90m, 12h, 2d, 1w"
    )
    into.add_argument("--mine", action="store_true", help="whose folder is mine")


def given(args: argparse.Namespace) -> bool:
    """Whether there is any filter."""
    return bool(args.mine) or any(getattr(args, key) is not None for key in (*OF_DATA, "name", "since"))


def checked(args: argparse.Namespace) -> dict[str, str]:
    """The wanted values of `OF_DATA` that a filter asks for. Raises: JobspecError for a wrong value."""
    if args.runs_wanted and given(args):
        what = "filters choose among all runs, and RUN names one"
        raise fail("usage.filter", what, fix="leave the filters out, or RUN")
    wanted = {key: getattr(args, key) for key in OF_DATA if getattr(args, key) is not None}
    if not wanted.keys() & {"state", "verdict"}:
        return wanted
    from jobspec.launchers import JobState
    from jobspec.verdict import Result

    states = {state.value.lower(): state.value for state in JobState} | {NOT_STARTED: NOT_STARTED}
    verdicts = {str(result).lower(): str(result) for result in Result} | {"none": ""}
    for key, known in (("state", states), ("verdict", verdicts)):
        if key in wanted:
            value = wanted[key].lower()
            value = spaced if (spaced := value.replace("-", " ")) in known else value
            if value not in known:
                what = f"`--{key} {wanted[key]}` is no {key}"
                raise fail("usage.filter", what, did_you_mean(value, known), f"use {one_of(sorted(known))}")
            wanted[key] = known[value]
    return wanted


def since(text: str | None, now: datetime) -> str:
    """The first run id that is new enough; empty without a limit. Raises: JobspecError for no time.

    >>> since("2d", datetime(2026, 11, 29, 12, tzinfo=UTC)), since("2026-11-01", datetime.now(UTC))
    ('20261127-120000', '20261101-000000')
    """
    if text is None:
        return ""
    span = re.fullmatch(r"(\d{1,5})([mhdw])", text)
    try:
        if span:
            start = now - timedelta(**{_UNITS[span[2]]: int(span[1])})
        else:
            start = datetime.fromisoformat(text)
            start = start.astimezone(UTC) if start.tzinfo else start
        return start.strftime("%Y%m%d-%H%M%S")
    except (ValueError, OverflowError) as problem:
        what = f"`--since {text}` is no time"
        raise fail(
            "usage.filter", what, fix="write 2026-11-29, 2026-11-29T12:00, 90m, 12h, 2d or 1w"
        ) from problem


def fits_folder(run: Found, args: argparse.Namespace, first: str) -> bool:
    """Whether the run's folder alone lets it be shown."""
    if first and run.run_id < first:
        return False
    if args.name is not None and not fnmatchcase(run.name, args.name):
        return False
    return not args.mine or _mine(run)


def _mine(run: Found) -> bool:
    try:
        return os.stat(run.root).st_uid == os.geteuid()  # noqa: PTH116
    except OSError:
        return False


def fits(data: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    """Whether the run's data has every wanted value."""
    return all(
        (data.get(key) or (NOT_STARTED if key == "state" else "")) == value for key, value in wanted.items()
    )
