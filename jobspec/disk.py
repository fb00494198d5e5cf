"""Questions about paths that never raise, even below a forbidden folder or on a lost file system.

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
    """Whether `folder` is a folder that this user may list."""
    try:
        os.scandir(folder).close()
    except OSError:
        return False
    return True


def why_not_there(path: str | Path) -> str:
    """Why there is no folder at `path`, as the end of a sentence: `does not exist`."""
    try:
        os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, ValueError):
        return "does not exist"
    except OSError as problem:
        return f"cannot be reached: {(problem.strerror or str(problem)).lower()}"
    return "is no folder"
