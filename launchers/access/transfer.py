"""Folders and files between this machine and a login node, over SFTP."""

from __future__ import annotations

import contextlib
import os
import posixpath
import shlex
import shutil
import stat
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from jobspec.finding import fail
from jobspec.launchers.access.command import LoginShell
from jobspec.launchers.file_lock import locked
from jobspec.runtime.base.safe_write import replacing

if TYPE_CHECKING:
    import paramiko

# Files that only grow: a longer remote one is continued from where the local copy ends.
_GROWING = (".log", ".jsonl")
PIECE = 1 << 18
SILENCE_S = 120.0  # a storage of the login node that hangs is silent, too


class Transfers(LoginShell):
    """The part of a client that moves files; how SFTP is opened, the client says."""

    @abstractmethod
    def _sftp(self) -> AbstractContextManager[paramiko.SFTPClient]:
        """A session. Raises: JobspecError when the login node cannot be reached, or is lost meanwhile."""

    def upload(self, local: Path, remote: str) -> None:
        if self.run(["test", "-e", remote]).code == 0:  # it arrives in one rename, so it is complete
            return
        parent, partial = posixpath.dirname(remote), f"{remote}.partial-{os.getpid()}"
        self._must(["mkdir", "-p", parent, partial])
        with self._sftp() as sftp:
            for path in sorted(local.rglob("*")):
                target = posixpath.join(partial, path.relative_to(local).as_posix())
                if path.is_dir():
                    sftp.mkdir(target)
                elif path.is_file():
                    sftp.put(str(path), target)
                    sftp.chmod(target, stat.S_IMODE(path.stat().st_mode))
        self._must(["mv", "-T", partial, remote])

    def send(self, local: Path, remote: str) -> None:
        self._must(["mkdir", "-p", posixpath.dirname(remote)])
        with self._sftp() as sftp, local.open("rb") as source:
            with contextlib.suppress(FileNotFoundError):
                there = sftp.stat(remote).st_size or 0
                source.seek(there if there <= local.stat().st_size else 0)
            with sftp.open(remote, "ab" if source.tell() else "wb") as target:
                target.set_pipelined(True)
                shutil.copyfileobj(source, target, PIECE)

    def download(self, remote: str, local: Path) -> None:
        local.mkdir(parents=True, exist_ok=True)
        lock = local.with_name(f".{local.name}.lock")
        lock.touch()
        # Two commands that continue one file at once would both append the same bytes.
        with locked(lock), self._sftp() as sftp:
            for name, attributes in _walk(sftp, remote):
                with contextlib.suppress(FileNotFoundError):  # it was there when the folder was listed
                    _fetch(sftp, posixpath.join(remote, name), attributes, local / name)

    def _must(self, argv: Sequence[str]) -> None:
        done = self.run(argv)
        if done.code != 0:
            raise fail(
                "launch.remote-failed",
                f"`{shlex.join(argv)}` failed on `{self.where}` with exit code {done.code}",
                why=done.complaint,
                fix="check `paths.runs` of the site profile: it must be writable on the login node",
            )


def _walk(
    sftp: paramiko.SFTPClient, root: str, below: str = ""
) -> Iterator[tuple[str, paramiko.SFTPAttributes]]:
    try:
        entries = sftp.listdir_attr(posixpath.join(root, below) if below else root)
    except FileNotFoundError:
        if not below:
            raise
        return  # gone since its parent was listed
    for entry in entries:
        name = posixpath.join(below, entry.filename) if below else entry.filename
        mode = entry.st_mode or 0
        if stat.S_ISDIR(mode):
            yield from _walk(sftp, root, name)
        elif stat.S_ISREG(mode):
            yield name, entry


def _copy(source: paramiko.SFTPFile, target: BinaryIO, left: int) -> None:
    """`left` bytes, a piece at a time: what a log grows by meanwhile is the next call's."""
    source.prefetch(source.tell() + left)
    while left and (piece := source.read(min(left, PIECE))):
        target.write(piece)
        left -= len(piece)


def _fetch(sftp: paramiko.SFTPClient, remote: str, attributes: paramiko.SFTPAttributes, local: Path) -> None:
    size, mtime = attributes.st_size or 0, attributes.st_mtime or 0
    known = local.stat() if local.is_file() else None
    if known is not None and known.st_size == size and int(known.st_mtime) >= mtime:
        return
    local.parent.mkdir(parents=True, exist_ok=True)
    if known is not None and local.name.endswith(_GROWING) and known.st_size < size:
        with sftp.open(remote, "rb") as source, local.open("ab") as target:
            source.seek(known.st_size)
            _copy(source, target, size - known.st_size)
    else:
        with replacing(local) as target:
            sftp.getfo(remote, target)
    os.utime(local, (mtime, mtime))
