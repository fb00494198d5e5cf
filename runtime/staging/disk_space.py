"""Whether what is to be copied fits on the node's disk. Standard library only, Python 3.9."""

from __future__ import annotations

import os
import stat
from typing import Sequence

from jobspec.finding import fail
from jobspec.runtime.staging.work import Work


def check_space(folder: str, works: Sequence[Work], name: str) -> None:
    """Raises: JobspecError where what is left to copy does not fit, before anything is copied."""
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    needed = sum(-(-work.entry.size // disk.f_frsize) * disk.f_frsize for work in works)
    needed -= sum(occupied(path) for work in works for path in (work.part, work.target))
    if needed > free:
        raise fail(
            "stage.space",
            f"`{name}` needs {_gib(needed)} more on `{folder}`, {_gib(free)} are free",
            f"{len(works)} files are left to copy",
            "free space there, set node_local to a larger disk, or use `stage: shared`",
            file=folder,
        )
    if disk.f_files and len(works) > disk.f_favail:
        what = f"`{name}` needs {len(works)} more inodes on `{folder}`, {disk.f_favail} are free"
        raise fail(
            "stage.space", what, "", "remove small files there, or set node_local elsewhere", file=folder
        )


def occupied(path: str) -> int:
    """Bytes of the disk that a file takes: a part that nodes fill together has gaps."""
    try:
        info = os.lstat(path)
    except OSError:
        return 0
    return min(info.st_blocks * 512, info.st_size) if stat.S_ISREG(info.st_mode) else 0


def _gib(count: float) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**27 else f"{count / 2**20:.2f} MiB"


def cap_bytes(text: str) -> int:
    """What a site allows each user to keep staged on a node; 0 without a bound. Raises: JobspecError."""
    try:
        return int(float(text or 0) * 2**30)
    except (ValueError, OverflowError):
        what = f"`JOBSPEC_STAGE_MAX_GIB` is `{text}`, not a number of GiB"
        raise fail("stage.cap", what, "", "correct it under `env` of the site profile") from None
