"""The last step of staging: a snapshot with its refs, or a plain folder with exactly its source's files.

Only verified files come here; a new snapshot appears whole, by one rename. Standard library only, Python 3.9.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from pathlib import Path
from typing import Tuple

from jobspec.plan import StagePlan
from jobspec.runtime.base.safe_write import write_text
from jobspec.runtime.staging.hfcache import Listing
from jobspec.runtime.staging.journal import Journal


def link_shared(home: str, item: StagePlan, listing: Listing) -> None:
    """Let an id find a model that stays on shared storage, also offline: the job has one HF_HUB_CACHE."""
    link = os.path.join(home, "hub", listing.repo_folder)
    if not listing.repo_folder or (os.path.lexists(link) and not os.path.islink(link)):
        return
    _replace_link(os.path.realpath(item.source), link)


def publish(listing: Listing, target: str, parts: str, journal: Journal) -> str:
    """Make the snapshot and the refs that name it; everything in it is verified and flushed.

    A new snapshot is made among the parts, where a kill leaves nothing that looks like one, and renamed.
    """
    path = os.path.join(target, "snapshots", listing.commit)
    os.makedirs(os.path.dirname(path), mode=0o750, exist_ok=True)
    fresh = not os.path.isdir(path)
    build = os.path.join(parts, "snapshot") if fresh else path
    if fresh:
        shutil.rmtree(build, ignore_errors=True)
    for entry in listing.files:
        names = entry.name.split("/")
        link = os.path.join(build, *names)
        os.makedirs(os.path.dirname(link), mode=0o750, exist_ok=True)
        blob = os.path.join(target, "blobs", os.path.basename(journal.path(listing.key(entry))))
        _replace_link(os.path.relpath(blob, os.path.dirname(os.path.join(path, *names))), link)
    if fresh:
        _move_in(build, path)
    for name in _refs(listing, target):
        _write_ref(os.path.join(target, "refs", *name.split("/")), listing.commit)
    return path


def _move_in(build: str, path: str) -> None:
    """Rename a finished snapshot; one that a process without locks has made meanwhile is as good."""
    try:
        os.rename(build, path)
    except OSError as problem:
        if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _refs(listing: Listing, target: str) -> Tuple[str, ...]:
    """The refs to write; with `main` where nothing defines it, since an id without a revision asks for it."""
    if "main" in listing.refs or os.path.exists(os.path.join(target, "refs", "main")):
        return listing.refs
    return (*listing.refs, "main")


def _replace_link(text: str, link: str) -> None:
    """A link `link` -> `text`, atomic; an existing one that is right is left alone."""
    if os.path.islink(link):
        if os.readlink(link) == text:
            return
    elif not os.path.lexists(link):
        os.symlink(text, link)
        return
    temp = f"{link}.tmp-{uuid.uuid4().hex}"
    os.symlink(text, temp)
    os.replace(temp, link)


def _write_ref(path: str, commit: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o750, exist_ok=True)
    write_text(Path(path), commit)


def tidy(listing: Listing, target: str) -> str:
    """Remove what the source no longer has, so that the copy is the source; returns the ready path."""
    kept = {os.path.join(target, *entry.name.split("/")) for entry in listing.files}
    for folder, _, names in os.walk(target):
        for name in names:
            if os.path.join(folder, name) not in kept:
                os.unlink(os.path.join(folder, name))
    return os.path.join(target, listing.files[0].name) if listing.single else target
