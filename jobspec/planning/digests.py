"""Digests of images, models and data sets by path, on this machine and on a cluster's login node.

Standard library only, Python 3.9: `far_side` takes it along.
"""

from __future__ import annotations

import hashlib
import os
import stat
from functools import lru_cache
from pathlib import Path

FULL_DIGEST_BYTES = 64 * 1024**2  # larger files get a digest of size, head and tail: an image has tens of GB
EDGE_BYTES = 1024**2
MAX_TREE_FILES = 2000  # of a model or data set by path
TREE_EDGE_BYTES = 64 * 1024


def file_digest(path: str | Path) -> str:
    """`sha256:…` of a file up to 64 MiB, beyond that `edges-sha256:…` of size, first and last MiB.

    The superblock of a squashfs image holds its build time and sizes. So the edges tell two images apart
    without reading tens of gigabytes at every submission. A folder's digest is that of its `config.json` or
    `etc/os-release`. A missing file has the empty digest.
    """
    target = Path(path)
    if target.is_dir():
        marks = (target / name for name in ("config.json", "etc/os-release", "rootfs/etc/os-release"))
        known = [file_digest(mark) for mark in marks if mark.is_file()]
        return "folder-" + known[0] if known else ""
    if not target.is_file():
        return ""
    facts = target.stat()
    return _digest_of(str(target), facts.st_size, facts.st_mtime_ns, facts.st_ino)


@lru_cache(maxsize=64)
def _digest_of(path: str, size: int, mtime_ns: int, inode: int) -> str:
    """The digest of a file, remembered while its size, time and inode stay the same."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as stream:
        if size <= FULL_DIGEST_BYTES:
            digest.update(stream.read())
            return f"sha256:{digest.hexdigest()}"
        digest.update(str(size).encode())
        digest.update(stream.read(EDGE_BYTES))
        stream.seek(-EDGE_BYTES, os.SEEK_END)
        digest.update(stream.read())
    return f"edges-sha256:{digest.hexdigest()}"


def tree_digest(source: str) -> str:
    """`edges-sha256:…` of a folder's or file's names, sizes and edges; empty beyond `MAX_TREE_FILES` files.

    It tells that files were replaced, without reading hundreds of gigabytes.
    """
    root = Path(source)
    if root.is_file():
        return file_digest(root)
    found: list[str] = []
    for folder, below, names in os.walk(root):
        below.sort()
        found += [os.path.join(folder, name) for name in names]  # noqa: PTH118 - many
        if len(found) > MAX_TREE_FILES:
            return ""
    marks = []
    for path in sorted(found):
        try:
            facts = os.stat(path)  # noqa: PTH116 - many
            digest = _edges_of(path, facts.st_size) if stat.S_ISREG(facts.st_mode) else ""
        except OSError:
            return ""
        marks.append(f"{os.path.relpath(path, root)}\0{digest}")
    digest = hashlib.sha256("\0".join(marks).encode(errors="surrogateescape")).hexdigest()
    return f"edges-sha256:{digest}" if marks else ""


def _edges_of(path: str, size: int) -> str:
    with open(path, "rb") as stream:  # noqa: PTH123 - many
        head = stream.read(TREE_EDGE_BYTES)
        stream.seek(max(0, size - TREE_EDGE_BYTES))
        return hashlib.sha256(b"%d " % size + head + stream.read(TREE_EDGE_BYTES)).hexdigest()
