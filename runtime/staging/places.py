"""Where a stage item lies on the node's disk, and how much of it is still to come.

Standard library only, Python 3.9.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import Tuple

from jobspec.plan import StagePlan
from jobspec.runtime.staging.disk_space import occupied
from jobspec.runtime.staging.hfcache import FileEntry, list_source


def repo_folder(item: StagePlan) -> str:
    """The name of the cache folder of an item from the hub."""
    return "--".join([item.kind + "s", *item.repo_id.split("/")])


def place(item: StagePlan) -> Tuple[str, str]:
    """The item's folder below the user's HF_HOME on the node: of a repo, or of a plain source with a key."""
    name = os.path.basename(os.path.normpath(item.source))
    if item.from_hub or item.layout == "hf":
        return "hub", repo_folder(item) if item.from_hub else name
    readable = re.sub(r"[^\w.-]+", "_", name)[:60] or "data"
    text = "\0".join([os.path.realpath(item.source), *item.allow, "\1", *item.ignore])
    return "plain", f"{readable}-{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:10]}"


def blob_path(blobs: str, entry: FileEntry) -> str:
    return os.path.join(blobs, entry.digest or "unnamed")


def part_name(key: str, entry: FileEntry) -> str:
    """The name of a file's part; without a known hash it names the file's size and time too.

    Nothing else would tell the beginning of an older content from the file's own.
    """
    version = "" if entry.digest else f"\0{entry.size}\0{entry.mtime_ns}"
    return hashlib.sha256((key + version).encode("utf-8", "surrogateescape")).hexdigest()


def left_bytes(item: StagePlan, node_local: str) -> int:
    """Bytes of the item's files that do not lie on the node's disk yet, whole or begun.

    Other revisions and files that it leaves out count on neither side. Raises: JobspecError; OSError.
    """
    home = os.path.join(os.path.realpath(node_local), f"hf-{os.geteuid()}")
    kind, folder = place(item)
    target, parts = os.path.join(home, kind, folder), os.path.join(home, "stage", folder + ".parts")
    listing = list_source(item)
    left = 0
    for key, entry in {listing.key(entry): entry for entry in listing.files}.items():
        there = os.path.join(target, *entry.name.split("/"))
        if listing.repo_folder:
            published = os.path.realpath(os.path.join(target, "snapshots", listing.commit, entry.name))
            blob = blob_path(os.path.join(target, "blobs"), entry)
            there = published if os.path.isfile(published) else blob
        have = max(occupied(there), occupied(os.path.join(parts, part_name(key, entry))))
        left += max(0, entry.size - have)
    return left
