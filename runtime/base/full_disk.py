"""Why the system refused to write: no space, no inodes or a quota, and what to do. Standard library only.

A full table of inodes says ENOSPC like a full disk. Of a quota the system does not say whether its space or
its number of files is used up.
"""

from __future__ import annotations

import errno
import os
from typing import Tuple, Union

_CAUSES = {
    errno.ENOSPC: ("the disk is full", "free space there (`df -h`), or use another disk"),
    errno.EDQUOT: (
        "the quota of space or of files is used up",
        "remove files of this user or project (`quota -s`, `lfs quota`), or use another disk",
    ),
}
_NO_INODES = ("no inodes are left there", "remove small files (`df -i`), or use another disk")


def refusal(problem: OSError, path: Union[str, "os.PathLike[str]"] = "") -> Tuple[str, str]:
    """Why, with the system's words, and the fix; "" where the cause is another one."""
    words = problem.strerror or str(problem)
    if problem.errno not in _CAUSES:
        return words, ""
    why, fix = _CAUSES[problem.errno]
    if problem.errno == errno.ENOSPC and _no_inodes(os.fspath(problem.filename or path)):
        why, fix = _NO_INODES
    return f"{why} ({words})", fix


def refused(said: str, path: Union[str, "os.PathLike[str]"]) -> Tuple[str, str]:
    """`refusal` by the words of a program that wrote below `path`; nothing where they name no full disk."""
    for number in _CAUSES:
        if os.strerror(number).lower() in said.lower():  # Go's programs have no capitals
            return refusal(OSError(number, os.strerror(number)), path)
    return "", ""


def _no_inodes(path: Union[str, bytes]) -> bool:
    """Whether inodes are scarcer than space there: a program that failed may have removed its files by now.

    Of the nearest folder that exists; some file systems count no inodes.
    """
    place = os.fsdecode(path)
    while place and not os.path.lexists(place):
        place = os.path.dirname(place)  # noqa: PTH120
    try:
        disk = os.statvfs(place or ".")
    except OSError:
        return False
    return disk.f_files > 0 and disk.f_favail / disk.f_files < disk.f_bavail / max(1, disk.f_blocks)
