"""What has been verified on this node's disk: the reason why a second staging takes no reading.

One JSON line per file, appended when the file is complete and flushed; a line cut off by a kill is
ignored, and its file is then verified again. A record counts as long as size, mtime and inode are the same.
"""

from __future__ import annotations

import ctypes
import json
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Dict, Iterator, List, Tuple

from jobspec.runtime.base.safe_write import replacing
from jobspec.runtime.staging.hfcache import FileEntry
from jobspec.runtime.staging.transfer import SYNC_BYTES, Done

JOURNAL_VERSION = 1


@dataclass
class Journal:
    """Records by key. `add` keeps small files back until `flush` has put them on the disk in one go."""

    file: str
    stream: IO[str]
    records: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    waiting: List[Dict[str, Any]] = field(default_factory=list)
    appended: int = 0

    @staticmethod
    @contextmanager
    def open(path: str) -> Iterator[Journal]:
        """The journal at `path`, made if it is not there. Complete records survive any exception."""
        records, torn = _read(path)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(fd, "a", encoding="utf-8") as stream:
            if torn:
                stream.write("\n")
            journal = Journal(path, stream, records)
            try:
                yield journal
            except BaseException:
                with suppress(OSError):  # on a full disk: the first fault is the one to tell
                    journal.flush()
                raise
            journal.flush()

    def holds(self, key: str, entry: FileEntry) -> bool:
        """Whether the bytes for `key` are on this disk, verified, and are those of `entry`."""
        record = self.records.get(key)
        if record is None:
            return False
        if entry.digest:
            same = record["digest"] == entry.digest
        else:
            same = record["source"] == [entry.path, entry.size, entry.mtime_ns]
        try:
            info = os.stat(record["path"])
        except OSError:
            return False
        return bool(same and record["stat"] == [info.st_size, info.st_mtime_ns, info.st_ino])

    def path(self, key: str) -> str:
        """Where the bytes for `key` are."""
        return str(self.records[key]["path"])

    def add(self, done: Done) -> None:
        """Record a complete file."""
        entry = done.work.entry
        key = done.work.key
        info = os.stat(done.path)
        record = {
            "v": JOURNAL_VERSION,
            "key": key,
            "path": done.path,
            "stat": [info.st_size, info.st_mtime_ns, info.st_ino],
            "algorithm": done.algorithm,
            "digest": done.digest,
            "source": [entry.path, entry.size, entry.mtime_ns],
        }
        self.records[key] = record
        if entry.size < SYNC_BYTES:
            self.waiting.append(record)
        else:
            self._append([record])

    def flush(self) -> None:
        """Put small files, renames and the journal on the disk."""
        if self.waiting:
            sync_file_system(self.file)
            records, self.waiting = self.waiting, []
            self._append(records)
        if self.appended:
            sync_file_system(self.file)

    def _append(self, records: List[Dict[str, Any]]) -> None:
        self.stream.write("".join(json.dumps(record) + "\n" for record in records))
        self.stream.flush()
        self.appended += len(records)

    def compact(self) -> None:
        """Write one line per key when this run added any; bounded growth over many runs."""
        if not self.appended:
            return
        with replacing(Path(self.file)) as stream:
            stream.writelines(json.dumps(record).encode() + b"\n" for record in self.records.values())
        self.appended = 0


def _read(path: str) -> Tuple[Dict[str, Dict[str, Any]], bool]:
    """(records, whether the last line was cut off)."""
    records: Dict[str, Dict[str, Any]] = {}
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            text = stream.read()
    except FileNotFoundError:
        return records, False
    for line in text.split("\n"):
        try:
            record = json.loads(line)
            if record["v"] == JOURNAL_VERSION:
                records[str(record["key"])] = {
                    **record,
                    "path": str(record["path"]),
                    "stat": list(record["stat"]),
                }
        except (ValueError, KeyError, TypeError):
            continue
    return records, bool(text) and not text.endswith("\n")


def sync_file_system(path: str) -> None:
    """syncfs(2) on the file system of `path`, sync(2) where libc has none."""
    try:
        syncfs = ctypes.CDLL(None, use_errno=True).syncfs
    except (AttributeError, OSError):
        os.sync()
        return
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        syncfs(fd)
    finally:
        os.close(fd)
