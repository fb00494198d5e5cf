"""A file to copy, and a thread's share of the copying."""

from __future__ import annotations

import time
from dataclasses import dataclass

from jobspec.runtime.staging.hfcache import FileEntry


@dataclass(frozen=True)
class Work:
    """Copy `entry` to `target` by way of `part`. An existing `target` is verified before it is replaced.

    `by_digest` puts the digest found in place of the last component of `target`. `key` is the caller's.
    """

    entry: FileEntry
    target: str
    part: str
    mode: int = 0o640
    by_digest: bool = False
    key: str = ""
    id: str = ""  # the same on every node that stages this file


@dataclass
class Lane:
    """What one copying thread does now; `since` is when it last moved (`time.monotonic`)."""

    path: str = ""
    doing: str = ""
    since: float = 0.0
    moved: int = 0

    def tick(self, count: int) -> None:
        self.moved += count
        self.since = time.monotonic()
