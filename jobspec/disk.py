"""Looks at disks that never raise: a folder above may be forbidden, or its file system gone.

`Path.is_dir` and its siblings raise where a folder above may not be entered (Python 3.11).
"""

from __future__ import annotations

import os
from pathlib import Path


def is_folder(path: str | Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112


def is_file(path: str | Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113


def exists(path: str | Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110


def is_readable(folder: Path) -> bool:
    """Whether it is a folder that this user may list."""
    try:
        os.scandir(folder).close()
    except OSError:
        return False
    return True


def why_not_there(path: str | Path) -> str:
    """Why a path that is looked for leads nowhere: an end of a sentence about it."""
    try:
        os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, ValueError):
        return "does not exist"
    except OSError as problem:
        return f"cannot be reached: {(problem.strerror or str(problem)).lower()}"
    return "is no folder"
