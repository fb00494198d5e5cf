"""What a stage item consists of, and what is wrong with it: its listing, from shared storage or from the hub.

Standard library only, Python 3.9.
"""

from __future__ import annotations

import os
import time
from typing import Callable, List, Optional, Tuple, TypeVar

from jobspec.finding import Finding, JobspecError, fail
from jobspec.plan import StagePlan
from jobspec.runtime.base import node_lock
from jobspec.runtime.base.in_time import in_time
from jobspec.runtime.staging.faults import os_finding
from jobspec.runtime.staging.hfcache import FileEntry, Listing, list_source
from jobspec.runtime.staging.hub_files import HubFiles, list_hub
from jobspec.runtime.staging.listing_checks import check_listing
from jobspec.runtime.staging.places import repo_folder
from jobspec.runtime.staging.transfer import Limits

T = TypeVar("T")
_MOUNT = "look at that mount on this node; a mount whose server is gone hangs like this"
_HUB = "give staging more time; `paused` and `restarted` in events.jsonl say what held it up"


def make_home(node_local: str) -> str:
    """This user's HF_HOME below `node_local`, made if needed. Raises: OSError; JobspecError."""
    home = node_lock.own_folder(node_local, "hf")
    for name in ("hub", "plain", "stage"):
        os.makedirs(os.path.join(home, name), exist_ok=True)
    return home


def listed(
    item: StagePlan, limits: Limits, findings: List[Finding], node_local: str, files: Optional[HubFiles]
) -> Listing:
    """The item's listing; what is wrong with it goes to `findings`."""
    left_s = max(0.0, limits.deadline - time.monotonic())
    try:
        if item.from_hub and files is not None:  # it watches itself, and may have to wait as the hub asks
            listing, faults = _guarded(lambda: _read_hub(item, node_local, files), left_s, item.repo_id, _HUB)
        else:
            seconds = min(limits.stall_s, left_s)
            listing, faults = _guarded(lambda: _read_source(item), seconds, item.source, _MOUNT)
    except JobspecError as problem:
        findings.extend(problem.findings)
        return Listing(item.source, ())
    except OSError as problem:
        findings.append(os_finding(problem, None, "listing", str(problem.filename or item.source)))
        return Listing(item.source, ())
    findings.extend(faults)
    return listing


def _read_source(item: StagePlan) -> Tuple[Listing, Tuple[Finding, ...]]:
    listing = list_source(item)
    return listing, check_listing(listing, item.kind, item.require, item.allow, item.ignore)


def _read_hub(item: StagePlan, node_local: str, files: HubFiles) -> Tuple[Listing, Tuple[Finding, ...]]:
    home = make_home(node_local)
    blobs = os.path.join(home, "hub", repo_folder(item), "blobs")

    def read(entry: FileEntry) -> str:
        path = os.path.join(blobs, entry.digest)
        if not os.path.isfile(path):
            return files.read_text(entry)
        with open(path, encoding="utf-8") as stream:  # verified when it came
            return stream.read()

    listing = list_hub(files.client, item, os.path.join(home, "stage"))
    return listing, check_listing(listing, item.kind, item.require, item.allow, item.ignore, read)


def _guarded(call: Callable[[], T], seconds: float, path: str, fix: str) -> T:
    what = f"`{path}` does not answer for {seconds:.0f} s"
    return in_time(seconds, call, fail("stage.stalled", what, "", fix, file=path))
