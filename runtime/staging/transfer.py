"""Copies files with their hash computed on the way, in parallel lanes, resumable and watched.

Knows nothing of models or cache layouts. The bytes come from an `OpenSource`, a local open of the shared
file system; or, on several nodes, `Shares` fill the part, and what it holds is followed as it grows.
Standard library only, Python 3.9.
"""

from __future__ import annotations

import errno
import os
import queue
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Protocol, Sequence, Tuple

from jobspec.finding import Finding, JobspecError, error
from jobspec.runtime.staging.chunks import to_prefix
from jobspec.runtime.staging.faults import changed, corrupt, cut_off, os_finding
from jobspec.runtime.staging.hashing import CHUNK_BYTES, Hasher, feed, new_hash
from jobspec.runtime.staging.hfcache import FileEntry
from jobspec.runtime.staging.work import Lane, Work

# Files from this size are flushed one by one; smaller ones together, by the caller, before publishing.
SYNC_BYTES = 4 << 20
# From this size a second thread hashes while the first copies: sha256 alone takes as long as the copy.
OVERLAP_BYTES = 32 << 20
_RETRY = (errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.ECONNRESET, errno.EHOSTDOWN, errno.ENETDOWN)
_TRIES = 3


class Stream(Protocol):
    """What is read from: a raw file or a socket's file."""

    def readinto(self, buffer: Any, /) -> Optional[int]: ...
    def close(self) -> None: ...


OpenSource = Callable[[FileEntry, int], Stream]  # (file, offset) -> its bytes from that offset


@dataclass(frozen=True)
class Done:
    """`work` is complete and verified at `path`. `copied` counts the bytes read from the source."""

    work: Work
    path: str
    algorithm: str
    digest: str
    copied: int


class Filled(Stream, Protocol):
    """A file's bytes, which are in its part already. `from_source` of them this node read itself."""

    @property
    def from_source(self) -> int: ...
    @property
    def fd(self) -> int: ...


class Shares(Protocol):
    """Brings files together with other nodes: `swarm.Swarm`."""

    def add(self, work: Work) -> None: ...
    def follow(self, work: Work, lane: Lane, stopped: Callable[[], bool]) -> Filled: ...
    def withdraw(self, work: Work) -> None: ...
    def complete(self, work: Work, path: str) -> None: ...
    def watch(self) -> None: ...


@dataclass(frozen=True)
class Limits:
    """When to give up: `stall_s` without a byte in a lane, or `deadline` on `time.monotonic`.

    While `excused` says so, a lane that stands still is not given up: the source waits as it was asked to.
    """

    deadline: float
    stall_s: float = 120.0
    lanes: int = 2
    excused: Callable[[], bool] = lambda: False


def open_local(entry: FileEntry, offset: int) -> Stream:
    """The file itself, unbuffered, read ahead by the kernel."""
    stream = open(entry.path, "rb", buffering=0)  # noqa: SIM115 - the caller closes it
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
    stream.seek(offset)
    return stream


class Transfer:
    """One call of `run` copies all work; findings end it, the first one wins.

    Threads that hang in the kernel cannot be ended; they are daemons, and check `stop` before they
    write or rename, so an abandoned one changes nothing any more.
    """

    def __init__(
        self,
        works: Sequence[Work],
        limits: Limits,
        open_source: OpenSource = open_local,
        shares: Optional[Shares] = None,
    ) -> None:
        self.limits = limits
        self.total = sum(work.entry.size for work in works)
        self._open = open_source
        self._shares = shares
        self._todo: "queue.SimpleQueue[Work]" = queue.SimpleQueue()
        # Large first: the last lane to end then ends soon after the others.
        for work in sorted(works, key=lambda w: (-w.entry.size, w.target)):
            self._todo.put(work)
        self._left = len(works)
        self._out: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self.lanes = [Lane(since=time.monotonic()) for _ in range(max(1, min(limits.lanes, len(works))))]
        self.stop = threading.Event()

    def run(
        self, on_done: Callable[[Done], None], on_progress: Callable[[int, int, str], None]
    ) -> Tuple[Finding, ...]:
        """Copy everything; `()` when all is complete and verified. Both callbacks run in this thread.

        `on_progress(bytes, total, path)` is called about once a second.
        """
        for lane in self.lanes:
            threading.Thread(target=self._serve, args=(lane,), daemon=True, name="stage-copy").start()
        try:
            return self._watch(on_done, on_progress)
        finally:
            self.stop.set()

    def _watch(
        self, on_done: Callable[[Done], None], on_progress: Callable[[int, int, str], None]
    ) -> Tuple[Finding, ...]:
        reported = time.monotonic()
        while self._left:
            try:
                outcome = self._out.get(timeout=0.25)
            except queue.Empty:
                outcome = None
            if isinstance(outcome, Done):
                self._left -= 1
                on_done(outcome)
            elif outcome is not None:
                return tuple(outcome)
            now = time.monotonic()
            if now - reported >= 1.0:
                reported = now
                on_progress(self.moved, self.total, self._busy().path)
            if self._shares is not None:
                self._shares.watch()
            if outcome is None:
                given_up = self._overdue(now)
                if given_up:
                    return given_up
        on_progress(self.moved, self.total, "")
        return ()

    @property
    def moved(self) -> int:
        return sum(lane.moved for lane in self.lanes)

    def _busy(self) -> Lane:
        return min(
            (lane for lane in self.lanes if lane.path), key=lambda lane: lane.since, default=self.lanes[0]
        )

    def _overdue(self, now: float) -> Tuple[Finding, ...]:
        lane = self._busy()
        if lane.path and now - lane.since > self.limits.stall_s and not self.limits.excused():
            what = f"no byte has moved for {now - lane.since:.0f} s while {lane.doing} `{lane.path}`"
            fix = "look at that file system on this node; a mount whose server is gone hangs like this"
            if lane.path.startswith("http"):
                fix = "look at this node's network and name service; what is there is kept"
            return (
                error(
                    "stage.stalled",
                    what,
                    f"{self.moved} of {self.total} bytes were done",
                    fix,
                    file=lane.path,
                ),
            )
        if now > self.limits.deadline:
            what = f"the time is up with {self.moved} of {self.total} bytes done"
            why = f"last file: `{lane.path}` ({lane.doing})"
            return (
                error(
                    "stage.deadline",
                    what,
                    why,
                    "give staging more time; what is complete is kept",
                    file=lane.path,
                ),
            )
        return ()

    def _serve(self, lane: Lane) -> None:
        while not self.stop.is_set():
            try:
                work = self._todo.get_nowait()
            except queue.Empty:
                return
            lane.path, lane.doing, lane.since = work.entry.path, "reading", time.monotonic()
            try:
                self._out.put(self._copy(work, lane))
            except JobspecError as problem:
                self._out.put(problem.findings)
                return
            except OSError as problem:
                self._out.put([os_finding(problem, work, lane.doing)])
                return
            lane.path = ""

    def _copy(self, work: Work, lane: Lane) -> Done:
        existing = self._verify_existing(work, lane)
        if existing is not None:
            return existing
        fresh, mismatch, copied = False, "", 0
        for attempt in range(_TRIES):
            lane.path = work.entry.path
            try:
                digest, count, resumed = self._fill(work, lane, fresh)
            except _SourceError as problem:
                if attempt + 1 < _TRIES and problem.cause.errno in _RETRY:
                    continue
                raise JobspecError(os_finding(problem.cause, work, "reading")) from problem.cause
            copied += count
            if not work.entry.digest or digest == work.entry.digest:
                return self._publish(work, lane, digest, copied)
            if self._shares is not None:
                self._shares.withdraw(work)
            os.unlink(work.part)
            lane.tick(-work.entry.size)
            mismatch = digest
            # A whole read that hashes wrong twice is the source; once may be a bad part or a bad transfer.
            if fresh and not resumed:
                break
            fresh = True
        raise JobspecError(corrupt(work.entry, mismatch))

    def _verify_existing(self, work: Work, lane: Lane) -> Optional[Done]:
        """`Done` where `target` already holds the right bytes: a run that was cut off before its record."""
        if work.by_digest or not work.entry.digest or not os.path.isfile(work.target):
            return None
        if os.path.getsize(work.target) != work.entry.size:
            return None
        lane.path, lane.doing = work.target, "verifying"
        state = new_hash(work.entry.algorithm, work.entry.size)
        with open(work.target, "rb", buffering=0) as stream:
            feed(stream, work.entry.size, state, lane.tick)
        if state.hexdigest() != work.entry.digest:
            lane.tick(-work.entry.size)
            return None
        return Done(work, work.target, work.entry.algorithm, work.entry.digest, 0)

    def _fill(self, work: Work, lane: Lane, fresh: bool) -> Tuple[str, int, int]:
        """(digest, bytes read from the source, bytes that were there already) with `part` complete."""
        if self._shares is not None and not fresh:
            return self._follow(work, lane, self._shares)
        to_prefix(work.part)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(work.part, flags, 0o600)
        try:
            size, state = work.entry.size, new_hash(work.entry.algorithm, work.entry.size)
            have = 0 if fresh else min(os.fstat(fd).st_size, size)
            os.ftruncate(fd, have)
            if have:
                lane.path, lane.doing = work.part, "verifying"
                with open(fd, "rb", buffering=0, closefd=False) as part:
                    feed(part, have, state, lane.tick)
                lane.path = work.entry.path
            lane.doing = "opening"
            stream = _source(lambda: self._open(work.entry, have))
            copied = self._pump(work, lane, stream, fd, have, state)
            self._finish(work, lane, fd)
        finally:
            os.close(fd)
        return str(state.hexdigest()), copied, have

    def _follow(self, work: Work, lane: Lane, shares: Shares) -> Tuple[str, int, int]:
        """`_fill` where other nodes take part: hashes what arrives in `part`, in order."""
        state = new_hash(work.entry.algorithm, work.entry.size)
        stream = shares.follow(work, lane, self.stop.is_set)
        fd = os.dup(stream.fd)
        try:
            self._pump(work, lane, stream, None, 0, state)
            self._finish(work, lane, fd)
        finally:
            os.close(fd)
        return str(state.hexdigest()), stream.from_source, 0

    def _finish(self, work: Work, lane: Lane, fd: int) -> None:
        os.fchmod(fd, work.mode)
        if work.entry.size >= SYNC_BYTES:
            lane.doing = "flushing the copy of"
            os.fsync(fd)
            lane.tick(0)

    def _pump(
        self, work: Work, lane: Lane, stream: Stream, fd: Optional[int], offset: int, state: Any
    ) -> int:
        """Hash what is left from `offset` on, and write it to `fd` unless it is there. Returns the bytes."""
        size = work.entry.size
        hasher = Hasher(state, size - offset >= OVERLAP_BYTES)  # after the open: nothing to end if that fails
        buffers = [memoryview(bytearray(min(CHUNK_BYTES, max(size - offset, 1)))) for _ in range(hasher.ring)]
        position, turn = offset, 0
        try:
            while position < size:
                buffer = buffers[turn % hasher.ring]
                lane.doing = "reading"
                count = _source(lambda: stream.readinto(buffer[: min(len(buffer), size - position)])) or 0  # noqa: B023
                if self.stop.is_set():
                    raise InterruptedError(errno.EINTR, "staging was ended", work.entry.path)
                if count == 0:
                    raise JobspecError(cut_off(work.entry, position))
                hasher.put(buffer[:count])
                if fd is not None:
                    lane.doing = "writing the copy of"
                    write_at(fd, buffer[:count], position)
                position, turn = position + count, turn + 1
                lane.tick(count)
        finally:
            hasher.close()
            stream.close()
        return position - offset

    def _publish(self, work: Work, lane: Lane, digest: str, copied: int) -> Done:
        if not work.entry.digest:
            _unchanged(work.entry)
        target = os.path.join(os.path.dirname(work.target), digest) if work.by_digest else work.target
        if self.stop.is_set():
            raise InterruptedError(errno.EINTR, "staging was ended", work.entry.path)
        os.replace(work.part, target)
        if self._shares is not None:
            self._shares.complete(work, target)
        lane.tick(0)
        return Done(work, target, work.entry.algorithm or "sha256", digest, copied)


class _SourceError(Exception):
    """An OSError of the source, told apart from one of the target."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _source(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except OSError as problem:
        raise _SourceError(problem) from problem


def write_at(fd: int, data: memoryview, position: int) -> None:
    while data:
        count = os.pwrite(fd, data, position)
        data, position = data[count:], position + count


def _unchanged(entry: FileEntry) -> None:
    """Nothing but its own stability vouches for a file without a known hash."""
    info = os.stat(entry.path)
    if (info.st_size, info.st_mtime_ns) != (entry.size, entry.mtime_ns):
        raise JobspecError(changed(entry, info.st_size))


def default_lanes() -> int:
    """Two lanes reach the disk's rate on two cores with sha256 and SHA-NI; more only helps on more cores."""
    cores: List[int] = list(os.sched_getaffinity(0))
    return max(2, min(8, len(cores) // 2))
