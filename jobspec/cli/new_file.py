"""Write a file that is not there yet: nothing that a user has is ever overwritten."""

from __future__ import annotations

import os
from pathlib import Path

from jobspec.finding import JobspecError, fail


def refuse_existing(path: Path) -> None:
    """Raises: JobspecError when the file is there."""
    if os.path.lexists(path):
        raise _exists(path)


def write_new(path: Path, text: str) -> None:
    """Write a file that is not there yet. Raises: JobspecError when it is, or cannot be written."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as problem:
        raise _exists(path) from problem
    except OSError as problem:
        raise fail(
            "init.cannot-write",
            f"`{path}` cannot be written",
            why=(problem.strerror or str(problem)).lower(),
            fix="name a file in an existing folder",
        ) from problem


def _exists(path: Path) -> JobspecError:
    return fail(
        "init.exists",
        f"`{path}` exists already",
        why="a file that is there is never overwritten",
        fix="name another file by --out, or print it by --out -",
    )
