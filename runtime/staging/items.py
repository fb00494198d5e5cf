"""Puts models and data sets where every process of this node can read them, verified and complete.

`run` is the whole interface. On disk, below `node_local`:

    hf-<uid>/                      HF_HOME of the job: what is here works by path and, offline, by id
      hub/models--org--name/       Hugging Face cache layout; a snapshot appears when all of it is verified
      plain/<name>-<key>/          copies of plain folders and files
      stage/<folder>.{lock,journal}, <folder>.parts/    ours

One folder per user: a model that another user can change after it was verified is not verified.
Standard library only, Python 3.9. `hfcache` reads layouts, `transfer` copies, and `publish` makes the copy a
snapshot.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from jobspec.finding import Finding, JobspecError, stop_on_errors
from jobspec.plan import StagePlan
from jobspec.runtime.base import node_lock
from jobspec.runtime.staging import leases
from jobspec.runtime.staging.disk_space import check_space, occupied
from jobspec.runtime.staging.faults import os_finding
from jobspec.runtime.staging.hfcache import FileEntry, Listing, list_hf
from jobspec.runtime.staging.hub_files import HubFiles, hub_lanes
from jobspec.runtime.staging.journal import Journal
from jobspec.runtime.staging.listed import listed, make_home
from jobspec.runtime.staging.listing_checks import check_listing
from jobspec.runtime.staging.places import blob_path, part_name, place
from jobspec.runtime.staging.publish import link_shared, publish, tidy
from jobspec.runtime.staging.swarm import Swarm
from jobspec.runtime.staging.transfer import Done, Limits, OpenSource, Transfer, default_lanes, open_local
from jobspec.runtime.staging.work import Work

Report = Callable[[str, Mapping[str, Any]], None]

# No byte for this long means a dead mount, not a slow one: NFS retries every 60 s (nfs(5), timeo=600).
STALL_S = 180.0
LOCK_PATIENCE_S = 1.0  # then other nodes need not wait for what this one would read


@dataclass(frozen=True)
class StageResult:
    """`ready` maps each item's `env`, or its `name` where that is empty, to a path; complete items only.

    `bytes` left shared storage in this call, `received` came from other nodes. `hf_home` is what HF_HOME must
    be for the job; `env` also holds HF_HUB_CACHE. Whether the hub may be asked at all (HF_HUB_OFFLINE) is
    the plan's choice.
    """

    ready: Mapping[str, str] = field(default_factory=dict)
    hf_home: str = ""
    bytes: int = 0
    received: int = 0
    findings: Tuple[Finding, ...] = ()
    seconds: float = 0.0
    cached: bool = False

    @property
    def env(self) -> Dict[str, str]:
        return {"HF_HOME": self.hf_home, "HF_HUB_CACHE": os.path.join(self.hf_home, "hub")}

    @property
    def ok(self) -> bool:
        return not any(finding.is_error for finding in self.findings)


@dataclass(frozen=True)
class _Job:
    """What all steps of one call share."""

    home: str
    report: Report
    limits: Limits
    open_source: OpenSource
    rehash: bool
    swarm: Optional[Swarm] = None
    cap: int = 0


def run(
    items: Sequence[StagePlan],
    node_local: str,
    report: Report,
    deadline_s: float,
    stall_s: float = STALL_S,
    lanes: int = 0,
    rehash: bool = False,
    open_source: OpenSource = open_local,
    swarm: Optional[Swarm] = None,
    cap_bytes: int = 0,
    files: Optional[HubFiles] = None,
) -> StageResult:
    """Make every item readable on this node; faults come back as findings, never as exceptions.

    The call lists and checks all sources before it copies the first byte. `deadline_s` is in seconds from
    now, `stall_s` in seconds without a byte. `lanes` 0 follows the number of cores. `rehash` reads every
    staged byte again; otherwise size, mtime and inode of a verified file are proof enough. `cap_bytes`
    bounds what this user's jobs keep on the node: the least recently used models go (0: no bound).
    `swarm` is this node's part in a staging by several nodes; it has met the other nodes already.
    `files` opens the files of items that come from the hub.
    `report(event, data)`: `waiting` {name, holder, seconds}, `ready` {name, path, bytes, seconds, cached},
    `progress` {name, bytes, total, rate, eta_s, file}; rates in bytes a second.
    """
    start = time.monotonic()
    limits = Limits(start + deadline_s, stall_s, lanes or default_lanes())
    if files is not None:
        lanes = lanes or (default_lanes() if swarm is not None else hub_lanes(1))
        limits = Limits(start + deadline_s, stall_s, lanes, files.client.alive)
        open_source = files.open
    findings: List[Finding] = []
    listings = [(item, listed(item, limits, findings, node_local, files)) for item in items]
    if any(finding.is_error for finding in findings):
        if swarm is not None:
            swarm.settle()
        return StageResult({}, "", 0, 0, tuple(findings), time.monotonic() - start)
    ready: Dict[str, str] = {}
    moved, home = 0, ""
    try:
        home = make_home(node_local)
        job = _Job(home, report, limits, open_source, rehash, swarm, cap_bytes)
        for item, listing in listings:
            path, count = _settle(job, item, listing)
            ready[item.env or item.name] = path
            moved += count
    except JobspecError as problem:
        findings.extend(problem.findings)
    except OSError as problem:
        findings.append(os_finding(problem, None, "preparing", str(problem.filename or home or node_local)))
    received = 0
    if files is not None:
        findings.extend(files.findings())
    if swarm is not None:
        findings.extend(swarm.findings)
        received = swarm.counts()["peers"]
        swarm.settle()
        if any(finding.is_error for finding in findings):
            swarm.halt()
    cached = not moved and not received and len(ready) == len(items)
    return StageResult(ready, home, moved, received, tuple(findings), time.monotonic() - start, cached)


def _settle(job: _Job, item: StagePlan, listing: Listing) -> Tuple[str, int]:
    """(ready path, bytes copied) of one item."""
    if not item.node_local:
        link_shared(job.home, item, listing)
        path = _shared_path(listing)
        job.report("ready", {"name": item.name, "path": path, "bytes": 0, "seconds": 0.0, "cached": True})
        return path, 0
    start = time.monotonic()
    kind, folder = place(item)
    state = os.path.join(job.home, "stage", folder)

    def waiting(holder: str, seconds: float) -> None:
        job.report("waiting", {"name": item.name, "holder": holder, "seconds": round(seconds, 1)})
        if job.swarm is not None and seconds > LOCK_PATIENCE_S:
            job.swarm.busy("another job stages the same on this node")

    with node_lock.hold(state + ".lock", job.limits.deadline, waiting) as exclusive:
        if job.swarm is not None:
            job.swarm.busy("")
        leases.hold(job.home, folder)
        path, moved = _stage(job, item, listing, kind, folder, exclusive)
    job.report(
        "ready",
        {
            "name": item.name,
            "path": path,
            "bytes": moved,
            "seconds": round(time.monotonic() - start, 3),
            "cached": not moved,
        },
    )
    return path, moved


def _shared_path(listing: Listing) -> str:
    return os.path.join(listing.root, listing.files[0].name) if listing.single else listing.root


def _stage(
    job: _Job, item: StagePlan, listing: Listing, kind: str, folder: str, exclusive: bool
) -> Tuple[str, int]:
    state = os.path.join(job.home, "stage", folder)
    # Without locks another process may stage the same now: parts of our own then, and none to continue.
    parts = (
        state + ".parts"
        if exclusive
        else tempfile.mkdtemp(prefix=folder + ".parts-", dir=os.path.dirname(state))
    )
    target = os.path.join(job.home, kind, folder)
    if os.path.islink(target):
        os.unlink(target)
    blobs = os.path.join(target, "blobs") if listing.repo_folder else target
    for path in (parts, blobs):
        os.makedirs(path, mode=0o750, exist_ok=True)
    done = False
    try:
        with Journal.open(state + ".journal") as journal:
            works = _pending(item, listing, blobs, parts, journal, job)
            if job.cap:
                _make_room(job, item, works)
            check_space(blobs, works, item.name)
            moved = _transfer(job, item, works, journal)
            journal.flush()
            path = publish(listing, target, parts, journal) if listing.repo_folder else tidy(listing, target)
            journal.compact()
            if item.from_hub:  # headers, which had no file to be read from before
                here = list_hf(target, listing.commit, item.allow, item.ignore)
                stop_on_errors(check_listing(here, item.kind, (), item.allow, item.ignore))
        done = True
    finally:
        if done or not exclusive:
            shutil.rmtree(parts, ignore_errors=True)
    return path, moved


def _pending(
    item: StagePlan, listing: Listing, blobs: str, parts: str, journal: Journal, job: _Job
) -> List[Work]:
    """The files that are not on record as verified, each blob once. The others are offered to other nodes."""
    works: Dict[str, Work] = {}
    for entry in listing.files:
        key = listing.key(entry)
        file_id = _file_id(item, key, entry)
        if not job.rehash and journal.holds(key, entry):
            if job.swarm is not None:
                job.swarm.offer(file_id, entry, journal.path(key))
            continue
        part = os.path.join(parts, part_name(key, entry))
        # Group and others never write; the owner and the group always read: save_pretrained leaves 0600.
        mode = (entry.mode & 0o755) | 0o640
        if listing.repo_folder:
            works[key] = Work(
                entry,
                blob_path(blobs, entry),
                part,
                mode,
                not entry.digest,
                key,
                file_id,
            )
        else:
            target = os.path.join(blobs, *entry.name.split("/"))
            _clear_way(blobs, target)
            works[key] = Work(entry, target, part, mode, key=key, id=file_id)
    return list(works.values())


def _file_id(item: StagePlan, key: str, entry: FileEntry) -> str:
    """A name for a file that nodes agree on exactly when they see the same bytes at the same place."""
    facts = [item.source, key, str(entry.size), entry.digest or str(entry.mtime_ns)]
    return hashlib.sha256("\0".join(facts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _clear_way(root: str, target: str) -> None:
    """The folders of `target`; a file that now must be a folder, or the reverse, is removed."""
    if os.path.isdir(target) and not os.path.islink(target):
        shutil.rmtree(target)
    folder = os.path.dirname(target)
    while len(folder) > len(root):
        if os.path.lexists(folder) and not os.path.isdir(folder):
            os.unlink(folder)
        folder = os.path.dirname(folder)
    os.makedirs(os.path.dirname(target), mode=0o750, exist_ok=True)


def _make_room(job: _Job, item: StagePlan, works: Sequence[Work]) -> None:
    """Remove old models to keep to the cap. Raises: JobspecError where models in use leave no room."""
    needed = sum(max(0, work.entry.size - occupied(work.part)) for work in works)
    removed = leases.make_room(job.home, needed, job.cap)
    if removed:
        job.report("evicted", {"name": item.name, "removed": list(removed)})


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.isfile(path) else -1


def _transfer(job: _Job, item: StagePlan, works: Sequence[Work], journal: Journal) -> int:
    """Bytes read from the source. Raises: JobspecError with what ended it; complete files are on record."""
    copied = 0
    start = time.monotonic()

    def on_done(done: Done) -> None:
        nonlocal copied
        copied += done.copied
        journal.add(done)

    def on_progress(count: int, total: int, path: str) -> None:
        rate = count / max(time.monotonic() - start, 1e-6)
        data = {"name": item.name, "bytes": count, "total": total, "rate": round(rate), "file": path}
        if job.swarm is not None:
            data.update(job.swarm.counts())
        job.report("progress", {**data, "eta_s": round((total - count) / rate, 1) if rate else None})

    if works:
        swarm = job.swarm
        if swarm is not None:
            for work in sorted(works, key=lambda work: (-work.entry.size, work.id)):
                if work.by_digest or _size(work.target) != work.entry.size:
                    swarm.add(work)
        findings = Transfer(works, job.limits, job.open_source, swarm).run(on_done, on_progress)
        if findings:
            raise JobspecError(*findings)
    return copied
