"""Removes what the run's programs made among other runs' folders: only what is named, and is this user's."""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path
from typing import List, Sequence

from jobspec.plan import MadePlan

NAME = re.compile(r"[A-Za-z0-9_-]+")


def remove(made: Sequence[MadePlan], attempt: Path) -> List[str]:
    """Remove the noted folders from this node, and their parent once it is empty.

    Returns the folders that could not be removed.
    """
    left: List[str] = []
    for noted in made:
        try:
            names = (attempt / noted.note).read_text(errors="replace").split("\n")
        except OSError:
            continue  # nothing was made
        for name in dict.fromkeys(filter(None, names)):
            folder = Path(noted.below, name)
            if not NAME.fullmatch(name) or not _ours(folder):
                continue
            shutil.rmtree(folder, ignore_errors=True)
            if folder.exists():
                left.append(str(folder))
        _remove_empty(Path(noted.below))
    return left


def _ours(folder: Path) -> bool:
    """A real folder of this user: never through a link."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _remove_empty(folder: Path) -> None:
    if _ours(folder):
        try:
            folder.rmdir()
        except OSError:
            return  # other runs are in it
