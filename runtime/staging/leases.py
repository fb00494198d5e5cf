"""Which staged models are in use on a node, and room for a new one under a cap.

Whoever stages a model holds a shared flock(2) on `<folder>.lease` until its process ends, however it ends.
The time of that file says when the model was last staged. `make_room` removes the least recently used models
that nobody holds, and none on a file system without locks. Standard library only, Python 3.9.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import uuid
from typing import Dict, Iterator, List, Tuple

from jobspec.finding import fail

SUFFIX = ".lease"
_held: Dict[str, int] = {}  # by path; open for as long as this process lives


def hold(home: str, folder: str) -> None:
    """Keep `folder` from being removed until this process ends. Raises: OSError."""
    path = os.path.join(home, "stage", folder + SUFFIX)
    if path in _held and not _is_at(_held[path], path):  # somebody has cleared the folder meanwhile
        os.close(_held.pop(path))
    if path not in _held:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with contextlib.suppress(OSError):  # no locks here: then nothing is removed either
            fcntl.flock(fd, fcntl.LOCK_SH)
        _held[path] = fd
    os.utime(path)


def _is_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def release(home: str) -> None:
    """Give up this process's leases below `home`."""
    for path in [path for path in _held if path.startswith(os.path.join(home, ""))]:
        os.close(_held.pop(path))


def make_room(home: str, needed: int, cap: int) -> Tuple[str, ...]:
    """Remove what is in nobody's use, oldest first, until `needed` more bytes keep to `cap`; their names.

    Raises: JobspecError `stage.cap` when what is in use leaves no room.
    """
    staged = _staged(home)
    used, removed = sum(size for _, _, size, _ in staged), []
    if needed > cap:
        staged = []  # it will not fit whatever goes
    for _, folder, size, target in sorted(staged):
        if used + needed <= cap:
            break
        if _remove(home, folder, target):
            used -= size
            removed.append(folder)
    if used + needed > cap:
        raise fail(
            "stage.cap",
            f"{needed / 2**30:.2f} GiB more would exceed the cap of {cap / 2**30:.2f} GiB",
            f"{used / 2**30:.2f} GiB in `{home}` are in use by running jobs, or cannot be removed",
            "wait for those jobs, or raise `JOBSPEC_STAGE_MAX_GIB`",
            file=home,
        )
    return tuple(removed)


def _staged(home: str) -> List[Tuple[float, str, int, str]]:
    """(last use, folder, bytes, path) of everything that was staged with a lease."""
    staged = []
    for entry in os.scandir(os.path.join(home, "stage")):
        folder = entry.name[: -len(SUFFIX)]
        if not entry.name.endswith(SUFFIX):
            continue
        for kind in ("hub", "plain"):
            path = os.path.join(home, kind, folder)
            if os.path.isdir(path) and not os.path.islink(path):
                staged.append((entry.stat().st_mtime, folder, sum(_sizes(path)), path))
    return staged


def _sizes(path: str) -> Iterator[int]:
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                yield os.lstat(os.path.join(folder, name)).st_blocks * 512


def _remove(home: str, folder: str, target: str) -> bool:
    """Remove a staged model unless somebody holds it. Its record goes first: a kill leaves no false one."""
    state = os.path.join(home, "stage", folder)
    if state + SUFFIX in _held:
        return False
    fd = os.open(state + SUFFIX, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(state + ".journal")
        gone = f"{state}.parts-{uuid.uuid4().hex}"
        os.rename(target, gone)
        shutil.rmtree(gone, ignore_errors=True)
        return True
    except OSError:
        return False  # in use, no locks here, or not ours to remove
    finally:
        os.close(fd)
