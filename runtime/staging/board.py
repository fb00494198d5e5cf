"""What one node knows of the files that all stage together: what is here, and whose turn the rest is.

State and decisions, without threads and connections: those are `swarm`'s. One lock guards all of it; no I/O
happens under it but noting a chunk in its map. Standard library only, Python 3.9.
"""

from __future__ import annotations

import collections
import os
import statistics
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Sequence, Set

from jobspec.finding import Finding, JobspecError, warning
from jobspec.runtime.base.channel import Link
from jobspec.runtime.staging import chunks
from jobspec.runtime.staging.chunks import ChunkFile
from jobspec.runtime.staging.faults import cut_off
from jobspec.runtime.staging.hfcache import FileEntry
from jobspec.runtime.staging.serving import Found, Gone, Piece, Wait
from jobspec.runtime.staging.work import Lane, Work

Report = Callable[[str, Mapping[str, Any]], None]
# After this time a node is slow when half of the nodes have done their share, and the node not half of that.
SLOW_S = 10.0


@dataclass(frozen=True)
class Peer:
    """Another node, and where it serves."""

    name: str
    host: str
    port: int


@dataclass
class File:
    id: str
    entry: FileEntry
    data: ChunkFile
    work: Optional[Work] = None  # None: it was here before
    from_source: int = 0
    gone: str = ""
    problem: Optional[Exception] = None


@dataclass(eq=False)
class Chunk:
    file: File
    number: int
    without: Set[int] = field(default_factory=set)  # nodes that do not have it
    failures: int = 0  # of the node that it is asked of
    arriving: bool = False  # its bytes are being written: nobody else may fetch it now


@dataclass
class Share:
    """What is to come from one node: shared storage for our own."""

    waiting: Deque[Chunk] = field(default_factory=collections.deque)
    flying: Set[Chunk] = field(default_factory=set)
    bytes: int = 0
    restarts: int = 0
    excluded: str = ""
    links: List[Link] = field(default_factory=list)

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.flying)


class Board:
    """Files and shares. Methods that begin with `_` are called with the lock held, or take it themselves."""

    def __init__(self, me: int, report: Report, slow_s: float) -> None:
        self.me = me
        self._report, self._slow_s = report, slow_s
        lock = threading.RLock()
        self._todo = threading.Condition(lock)  # a chunk waits to be fetched
        self._changed = threading.Condition(lock)  # a chunk has arrived, or will not
        self._files: Dict[str, File] = {}
        self._peers: Sequence[Peer] = ()
        self._shares: List[Share] = []
        self._since = 0.0
        self._busy = ""
        self._settled = self._halted = self._closed = False
        self._excluded: List[Finding] = []
        # Whether this node's source is slow for a reason, so that others wait for its share.
        self._excused: Callable[[], bool] = lambda: False

    def settle(self) -> None:
        """Note that no more files come: an unknown file stays unknown."""
        with self._changed:
            self._settled = True
            self._changed.notify_all()

    def busy(self, why: str) -> None:
        """Let nobody wait for what this node has not begun to stage; an empty `why` ends that."""
        with self._changed:
            self._busy = why
            self._changed.notify_all()

    def halt(self) -> None:
        """Fetch no more; what is here is still served."""
        with self._changed:
            self._halted = True
            self._changed.notify_all()
            self._todo.notify_all()

    @property
    def findings(self) -> Sequence[Finding]:
        """The nodes that were left out."""
        return tuple(self._excluded)

    def counts(self) -> Dict[str, int]:
        """Bytes that this node has read from shared storage, and got from others, so far."""
        read_bytes = self._shares[self.me].bytes if self._shares else 0
        return {"source": read_bytes, "peers": sum(share.bytes for share in self._shares) - read_bytes}

    # Files.

    def offer(self, file_id: str, entry: FileEntry, path: str) -> None:
        """A file that is on this node already, verified."""
        data = ChunkFile(path, entry.size, not entry.digest)
        data.complete(path)
        with self._changed:
            self._files.setdefault(file_id, File(file_id, entry, data))
            self._changed.notify_all()

    def add(self, work: Work) -> None:
        """Fetch what of a file is not here yet."""
        with self._changed:
            if work.id in self._files:
                return
        data = ChunkFile(work.part, work.entry.size, not work.entry.digest)
        data.load()
        file = File(work.id, work.entry, data, work)
        with self._changed:
            self._files[work.id] = file
            for number in range(len(data.here)):
                if not data.here[number]:
                    self._route(Chunk(file, number))
            self._changed.notify_all()

    def follow(self, work: Work, lane: Lane, stopped: Callable[[], bool]) -> "Feed":
        """The bytes of a file from its beginning, as they arrive. Raises: OSError."""
        self.add(work)
        with self._changed:
            file = self._files[work.id]
            if isinstance(file.problem, OSError):  # tried again
                file.problem = None
                for number in range(len(file.data.here)):
                    if not file.data.here[number] and not self._underway(file, number):
                        self._route(Chunk(file, number))
        return Feed(self, file, lane, stopped)

    def _underway(self, file: File, number: int) -> bool:
        return any(
            chunk.file is file and chunk.number == number for share in self._shares for chunk in share.waiting
        )

    def withdraw(self, work: Work) -> None:
        """Give no more of a part that did not verify to anybody."""
        with self._changed:
            file = self._files.get(work.id)
            if file is not None:
                file.gone = "its copy did not verify"
                file.data.forget()

    def complete(self, work: Work, path: str) -> None:
        """The whole file is verified at `path`."""
        with self._changed:
            file = self._files.get(work.id)
            if file is None:
                data = ChunkFile(path, work.entry.size, not work.entry.digest)
                file = self._files[work.id] = File(work.id, work.entry, data, work)
            file.data.complete(path)
            file.gone, file.problem = "", None
            self._changed.notify_all()

    # What others ask for.

    def find(self, file_id: str, number: int, seconds: float) -> Found:
        """Where a chunk is; waits up to `seconds` for it."""
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                place = self._find(file_id, number)
                left = end - time.monotonic()
                if not isinstance(place, Wait) or left <= 0:
                    return place
                self._changed.wait(left)

    def _find(self, file_id: str, number: int) -> Found:
        file = self._files.get(file_id)
        if self._closed or (file is None and self._settled):
            return Gone("this node does not stage it")
        if file is None:
            return Gone(self._busy) if self._busy else Wait(own=True)
        if not 0 <= number < len(file.data.here):
            return Gone("there is no such chunk")
        if file.data.here[number]:
            offset, length = chunks.span(file.data.size, number)
            code = file.data.codes.get(number, "")
            return Piece(file.data.path, offset, length, code, file.data.strong)
        if file.gone or file.problem or self._halted:
            return Gone(file.gone or "this node could not read it")
        return Wait(own=self._reader(Chunk(file, number)) == self.me and not self._excused())

    # Whose turn it is. The lock is held.

    def _reader(self, chunk: Chunk) -> int:
        """The first node that may have the chunk; at the latest this one, which then reads it."""
        for index in chunks.readers(chunk.file.id, chunk.number, len(self._peers)):
            if index == self.me:
                break
            if not self._shares[index].excluded and index not in chunk.without:
                return index
        return self.me

    def _route(self, chunk: Chunk, first: bool = False) -> None:
        waiting = self._shares[self._reader(chunk)].waiting
        if first:
            waiting.appendleft(chunk)
        else:
            waiting.append(chunk)
        self._todo.notify_all()

    def _take(self, index: int, block: bool) -> Optional[Chunk]:
        """The next chunk of a node's share; None when there is none, or it is closed or left out."""
        share = self._shares[index]
        with self._todo:
            while not self._halted and not share.excluded:
                if share.waiting:
                    chunk = share.waiting.popleft()
                    share.flying.add(chunk)
                    return chunk
                if not block:
                    return None
                self._todo.wait()
        return None

    def _leave(self, index: int, chunk: Chunk, again: bool) -> None:
        """Take a chunk out of flight; `again` gives it to the node whose turn it is now."""
        with self._changed:
            flying = self._shares[index].flying
            mine = chunk in flying  # else `_exclude` has given it away
            flying.discard(chunk)
            if again and mine and not self._halted:
                chunk.failures = 0
                self._route(chunk, first=True)

    def _mark(self, index: int, chunk: Chunk, code: str, length: int) -> None:
        with self._changed:
            share = self._shares[index]
            share.flying.discard(chunk)
            share.bytes += length
            if index == self.me:
                chunk.file.from_source += length
            if not chunk.file.gone and not chunk.file.data.here[chunk.number]:
                chunk.file.data.mark(chunk.number, code)
            self._changed.notify_all()

    def _fail(self, file: File, problem: Exception) -> None:
        """Give the problem to whoever follows the file; other nodes ask the next reader."""
        with self._changed:
            file.problem = file.problem or problem
            self._changed.notify_all()

    # Who is left out.

    def _exclude(self, index: int, why: str) -> None:
        """Its share goes to the next readers; what is in flight comes back when its connections end."""
        name = self._peers[index].name
        with self._changed:
            share = self._shares[index]
            if share.excluded or self._halted:
                return
            share.excluded = why
            idle = {chunk for chunk in share.flying if not chunk.arriving}
            share.flying -= idle
            left, share.waiting = [*idle, *share.waiting], collections.deque()
            self._todo.notify_all()  # who waits for its share
            for chunk in reversed(left):
                chunk.failures = 0
                self._route(chunk, first=True)
            links = list(share.links)
            finding = warning(
                "stage.peer",
                f"node `{name}` gives the others nothing while staging, and was left out",
                f"seen by `{self._peers[self.me].name}`: {why}",
                "look at that node's network and disk; the others have read its share themselves",
                node=name,
            )
            self._excluded.append(finding)
        for link in links:
            link.close()
        self._report("peer", {"peer": name, "state": "excluded", "why": why})

    def watch(self) -> None:
        """Leave out each node that holds up all others. The transfer's watcher calls this now and then."""
        with self._changed:
            late = self._slow() if time.monotonic() - self._since > self._slow_s else []
            given_bytes = {index: self._shares[index].bytes for index in late}
        for index, count in given_bytes.items():
            self._exclude(index, f"it has given {count} bytes when others had done their share")

    def _slow(self) -> List[int]:
        done = [share.bytes for share in self._shares if not share.busy]
        if 2 * len(done) < len(self._shares):
            return []
        typical = statistics.median(done)
        return [
            index
            for index, share in enumerate(self._shares)
            if index != self.me and share.busy and not share.excluded and 2 * share.bytes < typical
        ]


class Feed:
    """One file from its part, from front to back, each byte as soon as it is there."""

    def __init__(self, board: Board, file: File, lane: Lane, stopped: Callable[[], bool]) -> None:
        self._board, self._file, self._lane, self._stopped = board, file, lane, stopped
        self._position = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self.fd = os.open(file.data.path, flags, 0o600)

    @property
    def from_source(self) -> int:
        return self._file.from_source

    def readinto(self, buffer: memoryview) -> int:
        """Raises: what reading this node's share, or writing to its disk, has raised."""
        board, data = self._board, self._file.data
        with board._changed:
            while True:
                ready = data.prefix(self._position)
                if ready or self._stopped() or board._halted:
                    break
                if self._file.problem is not None:
                    raise self._file.problem
                self._lane.doing = self._waits_for()
                board._changed.wait(0.5)
        if not ready:
            raise JobspecError(cut_off(self._file.entry, self._position))
        count = os.preadv(self.fd, [buffer[: min(len(buffer), ready)]], self._position)
        self._position += count
        return count

    def _waits_for(self) -> str:
        chunk = Chunk(self._file, self._position // chunks.CHUNK_BYTES)
        index = self._board._reader(chunk)
        if index == self._board.me:
            return "reading"
        return f"waiting for node `{self._board._peers[index].name}` to send"

    def close(self) -> None:
        os.close(self.fd)
