"""Folders on a node's disk that nobody else can change: whoever writes there puts code into a run.

Below `node_local` lie the record that `exec` follows, links to models, Ray's sockets. The names can be
guessed, so another user of the node may have made them first. Standard library only, Python 3.9.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from pathlib import Path

from jobspec.finding import JobspecError, fail
from jobspec.runtime.base.safe_write import beside

OVERFLOW_UID = 65534  # whoever has no number in this user namespace, root among them


def make(path: Path) -> None:
    """Make the folder, with 0700, or see that the one there is this user's alone.

    Raises: OSError; JobspecError that names it.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    check(path)


def check(path: Path) -> None:
    """Raises: OSError; JobspecError when it is a link, or another user made it or may write to it."""
    info = path.lstat()
    if stat.S_ISLNK(info.st_mode):
        raise _refused(path, f"is a link to `{path.readlink()}`")
    if not stat.S_ISDIR(info.st_mode):
        raise _refused(path, "is no folder")
    if info.st_uid != os.geteuid():
        raise _refused(path, f"belongs to {_name(info.st_uid)}")
    if info.st_mode & 0o022:
        raise _refused(path, f"may be written by others (mode {stat.S_IMODE(info.st_mode):04o})")


def link(path: Path, target: str) -> None:
    """A symbolic link in such a folder, replaced atomically."""
    temporary = beside(path)
    temporary.symlink_to(target)
    temporary.replace(path)


def check_parent(path: Path) -> None:
    """The same for the folder that holds such folders: root's, or one like /tmp, will do.

    Raises: OSError; JobspecError.
    """
    link, info = path.lstat(), path.stat()
    if not _trusted(link.st_uid) and stat.S_ISLNK(link.st_mode):
        raise _refused(path, f"is a link of {_name(link.st_uid)} to `{path.resolve()}`")
    if not _trusted(info.st_uid):
        raise _refused(path, f"belongs to {_name(info.st_uid)}")
    shared = 0o002 if info.st_gid == os.getegid() else 0o022
    if info.st_mode & shared and not info.st_mode & stat.S_ISVTX:
        raise _refused(path, f"may be written by others (mode {stat.S_IMODE(info.st_mode):04o})")


def _trusted(uid: int) -> bool:
    return uid in (0, os.geteuid()) or (uid == OVERFLOW_UID and _in_user_namespace())


def _in_user_namespace() -> bool:
    try:
        return Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]
    except OSError:
        return False


def _refused(path: Path, what: str) -> JobspecError:
    return fail(
        "preflight.node-local",
        f"`{path}` {what}",
        "whoever may write there can put files of theirs into this run",
        "remove it, or set `paths.node_local` in the site profile to a folder of each user's own, such as "
        "`/tmp/jobspec-${user}`",
        file=str(path),
    )


def _name(uid: int) -> str:
    try:
        return f"user `{pwd.getpwuid(uid).pw_name}`"
    except KeyError:
        return f"user {uid}"
