"""What can go wrong with a file while it is staged, each as the finding that says so.

Standard library only, Python 3.9.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Dict, Optional, Tuple

from jobspec.finding import Finding, error
from jobspec.runtime.base.full_disk import refusal
from jobspec.runtime.staging.hfcache import FileEntry, is_remote

if TYPE_CHECKING:
    from jobspec.runtime.staging.work import Work


def corrupt(entry: FileEntry, digest: str) -> Finding:
    """The finding for bytes that are not what the cache's blob name promises, or the hub's listing."""
    if is_remote(entry):
        found = f"expected {entry.algorithm} {entry.digest}, found {digest} ({entry.size} bytes), twice"
        return corrupt_at_hub(entry, found)
    return error(
        "stage.corrupt",
        f"`{entry.name}` does not hold the bytes that its name in the cache promises",
        f"expected {entry.algorithm} {entry.digest}, found {digest} ({entry.size} bytes)",
        "delete the blob and download the file again to shared storage",
        file=entry.path,
    )


def corrupt_at_hub(entry: FileEntry, why: str) -> Finding:
    """The finding for bytes from the hub that are not those of its listing."""
    return error(
        "stage.corrupt",
        f"`{entry.path}` does not bring the bytes that the hub's listing promises",
        why,
        "look at `HF_ENDPOINT` and at a proxy between, which may answer for the hub",
        file=entry.path,
    )


def changed(entry: FileEntry, size: int) -> Finding:
    """The finding for a source that was written to while it was read."""
    return error(
        "stage.changed",
        f"`{entry.name}` changed while it was read",
        f"{entry.size} bytes when staging began, {size} now",
        "let its writer end before the job starts",
        file=entry.path,
    )


def cut_off(entry: FileEntry, position: int) -> Finding:
    """The finding for a source that ends too early."""
    return error(
        "stage.corrupt",
        f"`{entry.name}` ends after {position} of {entry.size} bytes",
        "it was cut off while it was read",
        "look for its writer; download the file again to shared storage",
        file=entry.path,
    )


_CAUSES: Dict[int, Tuple[str, str, str]] = {
    errno.EFBIG: ("stage.file-limit", "the file size limit is reached", "raise `ulimit -f` on the node"),
    errno.EROFS: ("stage.read-only", "the file system is read-only", "set node_local to a writable folder"),
    errno.EACCES: (
        "stage.permission",
        "permission is denied",
        "let the job's user read the source and write node_local",
    ),
    errno.EPERM: (
        "stage.permission",
        "permission is denied",
        "let the job's user read the source and write node_local",
    ),
    errno.ENOENT: (
        "stage.vanished",
        "it is not there any more",
        "keep the source until the jobs that use it have ended",
    ),
    errno.ESTALE: (
        "stage.vanished",
        "its file handle is stale",
        "run the job again: the file was replaced on the server",
    ),
}


def os_finding(problem: OSError, work: Optional[Work], doing: str, path: str = "") -> Finding:
    """The finding for an OSError while staging, with the file and the step that failed (`doing`)."""
    rule, why, fix = _CAUSES.get(
        problem.errno or 0, ("stage.io", "the system refused", "look at `dmesg` on the node")
    )
    name = path or (work.entry.path if work else "") or str(problem.filename or "")
    full, free = refusal(problem, work.part if work else name)
    if free:
        rule, why, fix = "stage.disk-full", full, f"at `node_local` of this node: {free}"
        if work:
            _drop(work.part)
    return error(
        rule,
        f"{doing} `{name}` failed: {why}",
        f"[Errno {problem.errno}] {problem.strerror or problem}",
        fix,
        file=name,
    )


def _drop(path: str) -> None:
    """Remove a part that cannot be completed, so that a full disk does not stay full."""
    try:
        os.unlink(path)
    except OSError:
        return
