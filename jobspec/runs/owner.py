"""Whose a run folder is. Reading one is harmless; starting or entering a run executes files in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from jobspec.finding import fail
from jobspec.runs.paths import RunPaths


def owner(path: Path) -> str:
    """The user that owns what `path` leads to; empty for this user, for root, and for nothing there."""
    try:
        uid = path.stat().st_uid
    except OSError:
        return ""
    if uid in (0, os.geteuid()):
        return ""
    from pwd import getpwuid

    try:
        return getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def own(run: RunPaths) -> RunPaths:
    """`run` itself. Raises: JobspecError when others own or may write what starting or entering it runs."""
    for path in _executed(run):
        found = owner(path)
        if not found and not _writable_by_all(path):
            continue
        raise fail(
            "run.not-yours",
            f"`{path}` {f'belongs to {found}' if found else 'may be written by every user'}",
            why="its scripts would run as you",
            fix="render the spec again in a folder of your own"
            if found
            else f"make sure that the files are yours as they are, then run `chmod -R o-w {run.root}`",
        )
    return run


def _executed(run: RunPaths) -> Iterator[Path]:
    for folder in (run.root, *(point.root for point in run.points())):
        yield folder
        yield from sorted(path for path in folder.iterdir() if path.is_file())


def _writable_by_all(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IWOTH)
