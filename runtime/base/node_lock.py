"""What processes of one node share: a folder per user, and one process at a time per name.

flock(2) is released by the kernel when its holder dies, so a killed process blocks nobody. Where the
file system has no locks the caller learns it (`exclusive` is False) and must use unique temporary names.
"""

from __future__ import annotations

import errno
import fcntl
import getpass
import json
import os
import socket
import stat
import time
from contextlib import contextmanager, suppress
from threading import Event
from typing import Callable, Iterator

from jobspec.finding import fail

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_POLL_S = 0.1


def own_folder(node_local: str, name: str) -> str:
    """`<node_local>/<name>-<uid>`, made if needed and certain to be this user's alone.

    A `node_local` that we make is open to other users like /tmp, with the sticky bit. Where the folder
    belongs to somebody else (containers map users) or others may write to it, a number is added.
    Raises: OSError; JobspecError.
    """
    if not os.path.isdir(node_local):
        os.makedirs(node_local, exist_ok=True)
        os.chmod(node_local, 0o1777)
    uid = os.geteuid()
    for suffix in ["", *(f"-{n}" for n in range(1, 10))]:
        folder = os.path.join(os.path.realpath(node_local), f"{name}-{uid}{suffix}")
        try:
            os.mkdir(folder, 0o750)
            return folder
        except FileExistsError:
            info = os.lstat(folder)
            if stat.S_ISDIR(info.st_mode) and info.st_uid == uid and not info.st_mode & 0o002:
                return folder
    fix = "set node_local to another folder"
    raise fail(
        "stage.permission",
        f"`{node_local}` has no folder that is this user's alone",
        "",
        fix,
        file=node_local,
    )


@contextmanager
def hold(
    path: str,
    deadline: float,
    waiting: Callable[[str, float], None] = lambda holder, seconds: None,
    mode: int = 0o600,
) -> Iterator[bool]:
    """Hold the lock file `path`; yields whether it excludes others (False: no locks on this file system).

    `deadline` is on `time.monotonic`; `waiting(holder, seconds)` is called about once a second. Users share a
    lock whose `mode` lets them write.
    Raises: OSError; JobspecError `stage.locked` naming the holder at the deadline.
    """
    fd = _open(path, mode)
    try:
        exclusive = _acquire(fd, path, deadline, waiting)
        if exclusive:
            os.ftruncate(fd, 0)
            os.pwrite(fd, _me().encode(), 0)
        yield exclusive
    finally:
        os.close(fd)


def _open(path: str, mode: int) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        # Without O_CREAT first: in a sticky folder the kernel refuses it for another user's file
        # (fs.protected_regular, proc(5)).
        return os.open(path, flags)
    except FileNotFoundError:
        fd = os.open(path, flags | os.O_CREAT, mode)
    with suppress(PermissionError):  # another user made it in between
        os.fchmod(fd, mode)  # whatever the umask is
    return fd


def _acquire(fd: int, path: str, deadline: float, waiting: Callable[[str, float], None]) -> bool:
    start = time.monotonic()
    said = start
    idle = Event()
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as problem:
            if problem.errno in _NO_LOCKS:
                return False
            if problem.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
        now = time.monotonic()
        if now >= deadline:
            raise fail(
                "stage.locked",
                f"`{path}` is still held by {_holder(fd)}",
                f"waited {now - start:.0f} s",
                "let the other job end, or end it; a dead process holds no lock",
                file=path,
            )
        if now - said >= 1.0 or said == start:
            said = now
            waiting(_holder(fd), now - start)
        idle.wait(min(_POLL_S, max(0.0, deadline - now)))


def user_name() -> str:
    """Who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no entry in passwd: usual in containers
        return f"uid {os.getuid()}"


def _me() -> str:
    job, host = os.environ.get("SLURM_JOB_ID", ""), socket.gethostname()
    return json.dumps(
        {"user": user_name(), "host": host, "pid": os.getpid(), "job": job, "since": time.time()}
    )


def _holder(fd: int) -> str:
    """The holder as text. It may have written nothing yet, or its predecessor's text may still be there."""
    try:
        record = json.loads(os.pread(fd, 4096, 0))
        since = time.strftime("%H:%M:%S", time.localtime(record["since"]))
        job = f", job {record['job']}" if record.get("job") else ""
        return f"process {record['pid']} of {record['user']} on {record['host']}{job}, since {since}"
    except (ValueError, KeyError, TypeError, OSError):
        return "another process"
