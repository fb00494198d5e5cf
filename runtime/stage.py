"""Puts models and data sets where every process of this node can read them, verified and complete.

`run` is the whole interface. On disk, below `node_local`:

    hf-<uid>/                      HF_HOME of the job: what is here works by path and, offline, by id
      hub/models--org--name/       Hugging Face cache layout; a snapshot appears when all of it is verified
      plain/<name>-<key>/          copies of plain folders and files
      stage/<folder>.{lock,journal}, <folder>.parts/    ours

One folder per user: a model that another user can change after it was verified is not verified.
Standard library only, Python 3.9. Copying is in `transfer`, reading layouts in `hfcache`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import queue
import re
import shutil
import stat
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar

from jobspec.finding import Finding, JobspecError, fail
from jobspec.plan import StagePlan
from jobspec.runtime import leases, nodelock
from jobspec.runtime.hfcache import FileEntry, Listing, list_hf, list_plain
from jobspec.runtime.journal import Journal
from jobspec.runtime.listing_checks import check_listing
from jobspec.runtime.stage_faults import os_finding
from jobspec.runtime.swarm import Swarm
from jobspec.runtime.transfer import (
    Done,
    Limits,
    OpenSource,
    Transfer,
    Work,
    default_lanes,
    open_local,
)

Report = Callable[[str, Mapping[str, Any]], None]
T = TypeVar("T")

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
) -> StageResult:
    """Make every item readable on this node; faults come back as findings, never as exceptions.

    All sources are listed and checked before the first byte is copied. `deadline_s` and `stall_s` are
    seconds from now and seconds without a byte. `lanes` 0 means by the number of cores. `rehash` reads
    every staged byte again instead of trusting size, mtime and inode of what was verified before.
    `cap_bytes` bounds what this user's jobs keep on the node: the least recently used goes (0: no bound).
    `swarm` is this node's part in a staging by several, which has met the others already.
    `report(event, data)`: `waiting` {name, holder, seconds}, `ready` {name, path, bytes, seconds, cached},
    `progress` {name, bytes, total, rate, eta_s, file}; rates in bytes a second.
    """
    start = time.monotonic()
    limits = Limits(start + deadline_s, stall_s, lanes or default_lanes())
    findings: List[Finding] = []
    listings = [(item, _listed(item, limits, findings)) for item in items]
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
    if swarm is not None:
        findings.extend(swarm.findings)
        received = swarm.counts()["peers"]
        swarm.settle()
        if any(finding.is_error for finding in findings):
            swarm.halt()
    cached = not moved and not received and len(ready) == len(items)
    return StageResult(ready, home, moved, received, tuple(findings), time.monotonic() - start, cached)


def _listed(item: StagePlan, limits: Limits, findings: List[Finding]) -> Listing:
    """The item's listing; what is wrong with it goes to `findings`."""
    seconds = min(limits.stall_s, max(0.0, limits.deadline - time.monotonic()))
    try:
        listing, found = _guarded(lambda: _read_source(item), seconds, item.source)
    except JobspecError as problem:
        findings.extend(problem.findings)
        return Listing(item.source, ())
    except OSError as problem:
        findings.append(os_finding(problem, None, "listing", str(problem.filename or item.source)))
        return Listing(item.source, ())
    findings.extend(found)
    return listing


def _read_source(item: StagePlan) -> Tuple[Listing, Tuple[Finding, ...]]:
    if item.layout == "hf":
        listing = list_hf(item.source, item.revision, item.allow, item.ignore)
    else:
        listing = list_plain(item.source, item.allow, item.ignore)
    return listing, check_listing(listing, item.kind, item.require, item.allow, item.ignore)


def _guarded(call: Callable[[], T], seconds: float, path: str) -> T:
    """`call()` in a thread that is left behind when it hangs, as a stat on a dead mount does."""
    out: "queue.SimpleQueue[Tuple[bool, Any]]" = queue.SimpleQueue()

    def work() -> None:
        try:
            out.put((True, call()))
        except (JobspecError, OSError) as problem:
            out.put((False, problem))
        except Exception as problem:  # noqa: BLE001 - handed over, raised again below
            out.put((False, problem))

    threading.Thread(target=work, daemon=True, name="stage-list").start()
    try:
        good, value = out.get(timeout=seconds)
    except queue.Empty:
        fix = "look at that mount on this node; a mount whose server is gone hangs like this"
        raise fail(
            "stage.stalled", f"`{path}` does not answer for {seconds:.0f} s", "", fix, file=path
        ) from None
    if not good:
        raise value
    result: T = value
    return result


def make_home(node_local: str) -> str:
    """This user's HF_HOME below `node_local`, made if needed. Raises: OSError; JobspecError."""
    home = nodelock.own_folder(node_local, "hf")
    for name in ("hub", "plain", "stage"):
        os.makedirs(os.path.join(home, name), exist_ok=True)
    return home


def _settle(job: _Job, item: StagePlan, listing: Listing) -> Tuple[str, int]:
    """(ready path, bytes copied) of one item."""
    if not item.node_local:
        _link_shared(job.home, item, listing)
        path = _shared_path(listing)
        job.report("ready", {"name": item.name, "path": path, "bytes": 0, "seconds": 0.0, "cached": True})
        return path, 0
    start = time.monotonic()
    folder = _folder(item, listing)
    state = os.path.join(job.home, "stage", folder)

    def waiting(holder: str, seconds: float) -> None:
        job.report("waiting", {"name": item.name, "holder": holder, "seconds": round(seconds, 1)})
        if job.swarm is not None and seconds > LOCK_PATIENCE_S:
            job.swarm.busy("another job stages the same on this node")

    with nodelock.hold(state + ".lock", job.limits.deadline, waiting) as exclusive:
        if job.swarm is not None:
            job.swarm.busy("")
        leases.hold(job.home, folder)
        path, moved = _stage(job, item, listing, folder, exclusive)
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


def _link_shared(home: str, item: StagePlan, listing: Listing) -> None:
    """Let an id find a model that stays on shared storage, also offline: the job has one HF_HUB_CACHE."""
    link = os.path.join(home, "hub", listing.repo_folder)
    if not listing.repo_folder or (os.path.lexists(link) and not os.path.islink(link)):
        return
    _replace_link(os.path.realpath(item.source), link)


def _folder(item: StagePlan, listing: Listing) -> str:
    """The item's folder name on the node: the repo's, or a readable name with a key for a plain source."""
    if listing.repo_folder:
        return listing.repo_folder
    readable = re.sub(r"[^\w.-]+", "_", os.path.basename(os.path.normpath(item.source)))[:60] or "data"
    text = "\0".join([os.path.realpath(item.source), *item.allow, "\1", *item.ignore])
    return f"{readable}-{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:10]}"


def _stage(job: _Job, item: StagePlan, listing: Listing, folder: str, exclusive: bool) -> Tuple[str, int]:
    state = os.path.join(job.home, "stage", folder)
    # Without locks another process may stage the same now: parts of our own then, and none to continue.
    parts = (
        state + ".parts"
        if exclusive
        else tempfile.mkdtemp(prefix=folder + ".parts-", dir=os.path.dirname(state))
    )
    target = os.path.join(job.home, "hub" if listing.repo_folder else "plain", folder)
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
            _check_space(blobs, works, item.name)
            moved = _transfer(job, item, works, journal)
            journal.flush()
            path = (
                _publish(listing, target, parts, journal) if listing.repo_folder else _tidy(listing, target)
            )
            journal.compact()
        done = True
    finally:
        if done or not exclusive:
            shutil.rmtree(parts, ignore_errors=True)
    return path, moved


def _key(listing: Listing, entry: FileEntry) -> str:
    return entry.digest if listing.repo_folder and entry.digest else entry.name


def _pending(
    item: StagePlan, listing: Listing, blobs: str, parts: str, journal: Journal, job: _Job
) -> List[Work]:
    """The files that are not on record as verified, each blob once. The others are offered to other nodes."""
    works: Dict[str, Work] = {}
    for entry in listing.files:
        key = _key(listing, entry)
        file_id = _file_id(item, key, entry)
        if not job.rehash and journal.holds(key, entry):
            if job.swarm is not None:
                job.swarm.offer(file_id, entry, journal.path(key))
            continue
        part = os.path.join(parts, _part_name(key, entry))
        # Group and others never write; the owner and the group always read: save_pretrained leaves 0600.
        mode = (entry.mode & 0o755) | 0o640
        if listing.repo_folder:
            works[key] = Work(
                entry,
                os.path.join(blobs, entry.digest or "unnamed"),
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


def _part_name(key: str, entry: FileEntry) -> str:
    """A file without a known hash goes on from a part only while its size and time are the same.

    Nothing else would tell the beginning of an older content from the file's own.
    """
    version = "" if entry.digest else f"\0{entry.size}\0{entry.mtime_ns}"
    return hashlib.sha256((key + version).encode("utf-8", "surrogateescape")).hexdigest()


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
    """Keep to the cap. Raises: JobspecError where models in use leave no room."""
    needed = sum(max(0, work.entry.size - _occupied(work.part)) for work in works)
    removed = leases.make_room(job.home, needed, job.cap)
    if removed:
        job.report("evicted", {"name": item.name, "removed": list(removed)})


def _check_space(folder: str, works: Sequence[Work], name: str) -> None:
    """Raises: JobspecError where what is left to copy does not fit, before anything is copied."""
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    needed = sum(-(-work.entry.size // disk.f_frsize) * disk.f_frsize for work in works)
    needed -= sum(_occupied(path) for work in works for path in (work.part, work.target))
    if needed > free:
        raise fail(
            "stage.space",
            f"`{name}` needs {_gib(needed)} more on `{folder}`, {_gib(free)} are free",
            f"{len(works)} files are left to copy",
            "free space there, set node_local to a larger disk, or use `stage: shared`",
            file=folder,
        )
    if disk.f_files and len(works) > disk.f_favail:
        what = f"`{name}` needs {len(works)} more inodes on `{folder}`, {disk.f_favail} are free"
        raise fail(
            "stage.space", what, "", "remove small files there, or set node_local elsewhere", file=folder
        )


def _occupied(path: str) -> int:
    """Bytes of the disk that a file takes: a part that nodes fill together has gaps."""
    try:
        info = os.lstat(path)
    except OSError:
        return 0
    return min(info.st_blocks * 512, info.st_size) if stat.S_ISREG(info.st_mode) else 0


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.isfile(path) else -1


def _gib(count: float) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**27 else f"{count / 2**20:.2f} MiB"


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


def _publish(listing: Listing, target: str, parts: str, journal: Journal) -> str:
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
        blob = os.path.join(target, "blobs", os.path.basename(journal.path(_key(listing, entry))))
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
    """An id without a revision asks for `main`: where nothing says what that is, it is this commit."""
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
    temp = f"{path}.tmp-{uuid.uuid4().hex}"
    with open(temp, "w", encoding="utf-8") as stream:
        stream.write(commit)
    os.replace(temp, path)


def _tidy(listing: Listing, target: str) -> str:
    """Remove what the source no longer has, so that the copy is the source; returns the ready path."""
    wanted = {os.path.join(target, *entry.name.split("/")) for entry in listing.files}
    for folder, _, names in os.walk(target):
        for name in names:
            if os.path.join(folder, name) not in wanted:
                os.unlink(os.path.join(folder, name))
    return os.path.join(target, listing.files[0].name) if listing.single else target
