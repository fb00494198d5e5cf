"""Staging on several nodes: each byte leaves shared storage once, the nodes give each other the rest.

Every file is cut into chunks, and `chunks.readers` says for each which node reads it. A node reads its own
share into the part of the file, and asks each other node for that one's share, in the same order everywhere;
a chunk can be asked for as soon as it is written. So the time for all nodes is that for one, and a chunk.
`transfer` follows each part as it grows, hashes and publishes it: what counts as verified is decided there,
as on one node. A node that is silent, slow or sends other bytes is left out and named, and its share goes to
the next reader. Nodes that come late, or back with half of the files, ask for what they lack.

Standard library only, Python 3.9. The words that travel are in `serving`.
"""

from __future__ import annotations

import collections
import contextlib
import os
import statistics
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Deque, Dict, Iterator, List, Mapping, Optional, Sequence, Set

from jobspec.finding import Finding, JobspecError, warning
from jobspec.runtime import chunks, serving
from jobspec.runtime.channel import ChannelError, Hello, Link, connect
from jobspec.runtime.chunks import ChunkFile
from jobspec.runtime.hfcache import FileEntry
from jobspec.runtime.serving import PIECE_BYTES, BadChunkError, Gone, GoneError, Piece, Wait
from jobspec.runtime.transfer import (
    Lane,
    OpenSource,
    Stream,
    Work,
    cut_off,
    default_lanes,
    open_local,
    os_finding,
    write_at,
)

Report = Callable[[str, Mapping[str, Any]], None]

# Seconds without a byte after which a connection is made anew; then the node is left out.
PEER_STALL_S = 15.0
RESTARTS = 2
# A node is slow when, after this time, half of the nodes have done their share and it not half of that.
SLOW_S = 10.0
WINDOW_BYTES = 2 * chunks.CHUNK_BYTES  # on their way on one connection
WINDOW_CHUNKS = 64
STREAMS = 4  # connections of a node to all others, at least one to each


@dataclass(frozen=True)
class Peer:
    """Another node, and where it serves."""

    name: str
    host: str
    port: int


@dataclass
class _File:
    id: str
    entry: FileEntry
    data: ChunkFile
    work: Optional[Work] = None  # None: it was here before
    from_source: int = 0
    gone: str = ""
    problem: Optional[Exception] = None


@dataclass(eq=False)
class _Chunk:
    file: _File
    number: int
    without: Set[int] = field(default_factory=set)  # nodes that do not have it
    failures: int = 0  # of the node that it is asked of
    arriving: bool = False  # its bytes are being written: nobody else may fetch it now


@dataclass
class _Share:
    """What is to come from one node: shared storage for our own."""

    waiting: Deque[_Chunk] = field(default_factory=collections.deque)
    flying: Set[_Chunk] = field(default_factory=set)
    bytes: int = 0
    restarts: int = 0
    excluded: str = ""
    links: List[Link] = field(default_factory=list)

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.flying)


class Swarm:
    """This node's part in the job's staging. One lock guards all state; no I/O happens under it but
    noting a chunk in its map."""

    def __init__(
        self,
        me: int,
        token: str,
        report: Report = lambda event, data: None,
        stall_s: float = PEER_STALL_S,
        slow_s: float = SLOW_S,
    ) -> None:
        self.me = me
        self._token, self._report = token, report
        self._stall_s, self._slow_s = stall_s, slow_s
        lock = threading.RLock()
        self._todo = threading.Condition(lock)  # a chunk waits to be fetched
        self._changed = threading.Condition(lock)  # a chunk has arrived, or will not
        self._files: Dict[str, _File] = {}
        self._peers: Sequence[Peer] = ()
        self._shares: List[_Share] = []
        self._open: OpenSource = open_local
        self._since = 0.0
        self._busy = ""
        self._settled = self._halted = self._closed = False
        self._listener: Optional[serving.Listener] = None
        self._excluded: List[Finding] = []

    # Coming and going.

    def listen(self, ports: Sequence[int]) -> int:
        """Begin to serve; the port. Raises: OSError."""
        self._listener = serving.Listener(ports, self._token, self.find)
        return self.port

    @property
    def port(self) -> int:
        """Where this node serves, 0 before `listen`."""
        return self._listener.port if self._listener is not None else 0

    def meet(self, peers: Sequence[Peer], open_source: OpenSource = open_local) -> None:
        """Begin to fetch. `peers` are all nodes by index, this one among them."""
        with self._changed:
            self._peers, self._open = tuple(peers), open_source
            self._shares = [_Share() for _ in peers]
            self._since = time.monotonic()
        for _ in range(default_lanes()):
            threading.Thread(target=self._read_share, daemon=True, name="stage-read").start()
        for index in range(len(peers)):
            for _ in range(max(1, STREAMS // max(1, len(peers) - 1)) if index != self.me else 0):
                threading.Thread(target=self._pull, args=(index,), daemon=True, name="stage-pull").start()

    def settle(self) -> None:
        """No more files come: what is not known now never will be."""
        with self._changed:
            self._settled = True
            self._changed.notify_all()

    def busy(self, why: str) -> None:
        """While `why`, what this node has not begun to stage is not to be waited for."""
        with self._changed:
            self._busy = why
            self._changed.notify_all()

    def halt(self) -> None:
        """Fetch no more; what is here is still served."""
        with self._changed:
            self._halted = True
            self._changed.notify_all()
            self._todo.notify_all()

    def close(self) -> None:
        self.halt()
        with self._changed:
            self._closed = True
            links = [link for share in self._shares for link in share.links]
            self._changed.notify_all()
        if self._listener is not None:
            self._listener.close()
        for link in links:
            link.close()

    @property
    def findings(self) -> Sequence[Finding]:
        """The nodes that were left out."""
        return tuple(self._excluded)

    def counts(self) -> Dict[str, int]:
        """Bytes that this node has read from shared storage, and got from others, so far."""
        own = self._shares[self.me].bytes if self._shares else 0
        return {"source": own, "peers": sum(share.bytes for share in self._shares) - own}

    # Files.

    def offer(self, file_id: str, entry: FileEntry, path: str) -> None:
        """A file that is on this node already, verified."""
        data = ChunkFile(path, entry.size, not entry.digest)
        data.complete(path)
        with self._changed:
            self._files.setdefault(file_id, _File(file_id, entry, data))
            self._changed.notify_all()

    def add(self, work: Work) -> None:
        """Fetch what of a file is not here yet."""
        with self._changed:
            if work.id in self._files:
                return
        data = ChunkFile(work.part, work.entry.size, not work.entry.digest)
        data.load()
        file = _File(work.id, work.entry, data, work)
        with self._changed:
            self._files[work.id] = file
            for number in range(len(data.here)):
                if not data.here[number]:
                    self._route(_Chunk(file, number))
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
                        self._route(_Chunk(file, number))
        return Feed(self, file, lane, stopped)

    def _underway(self, file: _File, number: int) -> bool:
        return any(
            chunk.file is file and chunk.number == number for share in self._shares for chunk in share.waiting
        )

    def withdraw(self, work: Work) -> None:
        """The part is not what it should be: nobody gets any more of it."""
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
                file = self._files[work.id] = _File(work.id, work.entry, data, work)
            file.data.complete(path)
            file.gone, file.problem = "", None
            self._changed.notify_all()

    # What others ask for.

    def find(self, file_id: str, number: int, seconds: float) -> serving.Found:
        """Where a chunk is; waits up to `seconds` for it."""
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                found = self._find(file_id, number)
                left = end - time.monotonic()
                if not isinstance(found, Wait) or left <= 0:
                    return found
                self._changed.wait(left)

    def _find(self, file_id: str, number: int) -> serving.Found:
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
        return Wait(own=self._reader(_Chunk(file, number)) == self.me)

    # Whose turn it is. The lock is held.

    def _reader(self, chunk: _Chunk) -> int:
        """The first node that may have the chunk; at the latest this one, which then reads it."""
        for index in chunks.readers(chunk.file.id, chunk.number, len(self._peers)):
            if index == self.me:
                break
            if not self._shares[index].excluded and index not in chunk.without:
                return index
        return self.me

    def _route(self, chunk: _Chunk, first: bool = False) -> None:
        waiting = self._shares[self._reader(chunk)].waiting
        if first:
            waiting.appendleft(chunk)
        else:
            waiting.append(chunk)
        self._todo.notify_all()

    def _take(self, index: int, block: bool) -> Optional[_Chunk]:
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

    def _leave(self, index: int, chunk: _Chunk, again: bool) -> None:
        """A chunk is no more in flight; `again` gives it to whose turn it is now."""
        with self._changed:
            flying = self._shares[index].flying
            mine = chunk in flying  # else `_exclude` has given it away
            flying.discard(chunk)
            if again and mine and not self._halted:
                chunk.failures = 0
                self._route(chunk, first=True)

    def _mark(self, index: int, chunk: _Chunk, code: str, length: int) -> None:
        with self._changed:
            share = self._shares[index]
            share.flying.discard(chunk)
            share.bytes += length
            if index == self.me:
                chunk.file.from_source += length
            if not chunk.file.gone and not chunk.file.data.here[chunk.number]:
                chunk.file.data.mark(chunk.number, code)
            self._changed.notify_all()

    # Our own share, from shared storage.

    def _read_share(self) -> None:
        buffer = memoryview(bytearray(PIECE_BYTES))
        while True:
            chunk = self._take(self.me, block=True)
            if chunk is None:
                return
            try:
                code, length = self._read(chunk, buffer)
                self._mark(self.me, chunk, code, length)
            except (OSError, JobspecError) as problem:
                self._leave(self.me, chunk, again=False)
                self._fail(chunk.file, problem)

    def _read(self, chunk: _Chunk, buffer: memoryview) -> "tuple[str, int]":
        entry = chunk.file.entry
        offset, length = chunks.span(entry.size, chunk.number)
        code, done = chunks.new_code(chunk.file.data.strong), 0
        stream: Stream = self._open(entry, offset)
        _read_no_further(stream, offset, length)
        try:
            with _part(chunk.file) as fd:
                while done < length:
                    count = stream.readinto(buffer[: min(len(buffer), length - done)]) or 0
                    if count == 0:
                        raise JobspecError(cut_off(entry, offset + done))
                    code.update(buffer[:count])
                    _write(chunk.file, fd, buffer[:count], offset + done)
                    done += count
        finally:
            stream.close()
        return str(code.hexdigest()), length

    def _fail(self, file: _File, problem: Exception) -> None:
        """Whoever follows the file gets the problem; others ask the next reader."""
        with self._changed:
            file.problem = file.problem or problem
            self._changed.notify_all()

    # The others' shares.

    def _pull(self, index: int) -> None:
        """One connection to one node: ask ahead, receive in order, begin anew when it stands still."""
        flying: Deque[_Chunk] = collections.deque()
        buffer = memoryview(bytearray(PIECE_BYTES))
        link: Optional[Link] = None
        while True:
            asked = len(flying) if link is not None else 0
            if not flying:
                first = self._take(index, block=True)
                if first is None:
                    break
                flying.append(first)
            try:
                if link is None:
                    link = self._connect(index)
                for chunk in list(flying)[asked:]:
                    serving.ask(link, chunk.file.id, chunk.number)
                self._ask_ahead(index, link, flying)
                self._receive(index, link, flying[0], buffer)
                flying.popleft()
            except (ChannelError, BadChunkError) as problem:
                self._drop(index, link)
                link = None
                if not self._again(index, flying, str(problem)):
                    break
            except (OSError, JobspecError) as problem:  # this node's own disk
                chunk = flying.popleft()
                self._leave(index, chunk, again=False)
                self._fail(chunk.file, problem)
                self._drop(index, link)  # the rest of the chunk is still on its way
                link = None
        self._drop(index, link)
        for chunk in flying:
            self._leave(index, chunk, again=True)

    def _ask_ahead(self, index: int, link: Link, flying: "Deque[_Chunk]") -> None:
        ahead = sum(chunks.span(chunk.file.data.size, chunk.number)[1] for chunk in flying)
        while ahead < WINDOW_BYTES and len(flying) < WINDOW_CHUNKS:
            chunk = self._take(index, block=False)
            if chunk is None:
                return
            flying.append(chunk)
            ahead += chunks.span(chunk.file.data.size, chunk.number)[1]
            serving.ask(link, chunk.file.id, chunk.number)

    def _receive(self, index: int, link: Link, chunk: _Chunk, buffer: memoryview) -> None:
        """One chunk. Raises: ChannelError, BadChunkError; OSError, JobspecError of this node's disk."""
        file = chunk.file
        offset, length = chunks.span(file.data.size, chunk.number)
        try:
            count, code = serving.answer(link, file.id, chunk.number, self._stall_s)
        except GoneError:
            chunk.without.add(index)
            self._leave(index, chunk, again=True)
            return
        self._shares[index].restarts = 0
        if count != length:
            raise ChannelError(f"{count} bytes for a chunk of {length}")
        with self._arriving(index, chunk), _part(file) as fd:
            serving.receive(
                link,
                length,
                code,
                file.data.strong,
                lambda data, at: _write(file, fd, data, offset + at),
                buffer,
            )
        self._mark(index, chunk, code, length)

    @contextlib.contextmanager
    def _arriving(self, index: int, chunk: _Chunk) -> Iterator[None]:
        with self._changed:
            if chunk not in self._shares[index].flying:
                raise ChannelError("no longer wanted")
            chunk.arriving = True
        try:
            yield
        finally:
            chunk.arriving = False

    def _connect(self, index: int) -> Link:
        """Raises: ChannelError when the node does not let us in for `stall_s`; it may come late."""
        peer, end = self._peers[index], time.monotonic() + self._stall_s
        while True:
            try:
                link = connect(peer.host, peer.port, self._token, Hello(self.me, self._peers[self.me].name))
                break
            except (OSError, ChannelError) as problem:
                if time.monotonic() > end or self._halted or self._shares[index].excluded:
                    raise ChannelError(f"no connection to {peer.host}:{peer.port}: {problem}") from problem
                time.sleep(0.1)
        link.patience(max(self._stall_s, 2 * serving.WAIT_S))  # it says each second that it waits
        with self._changed:
            self._shares[index].links.append(link)
            unwanted = self._closed or bool(self._shares[index].excluded)
        if unwanted:
            self._drop(index, link)
            raise ChannelError("no longer wanted")
        return link

    def _drop(self, index: int, link: Optional[Link]) -> None:
        if link is not None:
            link.close()
            with self._changed:
                self._shares[index].links.remove(link)

    def _again(self, index: int, flying: "Deque[_Chunk]", problem: str) -> bool:
        """Whether another connection to the node is worth while; after RESTARTS in vain, or when one chunk
        fails twice whatever else it gives, it is left out."""
        with self._changed:
            share = self._shares[index]
            if self._halted or share.excluded:
                return False
            share.restarts += 1
            flying[0].failures += 1
            tired = share.restarts > RESTARTS or flying[0].failures >= RESTARTS
        if tired:
            self._exclude(index, problem)
        else:
            self._report("peer", {"peer": self._peers[index].name, "state": "restarted", "why": problem})
        return not tired

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
        """Leave out who holds all others up. Called now and then by whoever watches the transfer."""
        with self._changed:
            late = self._slow() if time.monotonic() - self._since > self._slow_s else []
            told = {index: self._shares[index].bytes for index in late}
        for index, count in told.items():
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

    def __init__(self, swarm: Swarm, file: _File, lane: Lane, stopped: Callable[[], bool]) -> None:
        self._swarm, self._file, self._lane, self._stopped = swarm, file, lane, stopped
        self._position = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self.fd = os.open(file.data.path, flags, 0o600)

    @property
    def from_source(self) -> int:
        return self._file.from_source

    def readinto(self, buffer: memoryview) -> int:
        """Raises: what reading this node's share, or writing to its disk, has raised."""
        swarm, data = self._swarm, self._file.data
        with swarm._changed:
            while True:
                ready = data.prefix(self._position)
                if ready or self._stopped() or swarm._halted:
                    break
                if self._file.problem is not None:
                    raise self._file.problem
                self._lane.doing = self._waits_for()
                swarm._changed.wait(0.5)
        if not ready:
            raise JobspecError(cut_off(self._file.entry, self._position))
        count = os.preadv(self.fd, [buffer[: min(len(buffer), ready)]], self._position)
        self._position += count
        return count

    def _waits_for(self) -> str:
        chunk = _Chunk(self._file, self._position // chunks.CHUNK_BYTES)
        index = self._swarm._reader(chunk)
        if index == self._swarm.me:
            return "reading"
        return f"waiting for node `{self._swarm._peers[index].name}` to send"

    def close(self) -> None:
        os.close(self.fd)


def _read_no_further(stream: Stream, offset: int, length: int) -> None:
    """Ask the kernel for these bytes at once, and for none beyond: what follows another node reads.

    Read-ahead past the end of each chunk cost 0.7 of the model again on two nodes.
    """
    fileno = getattr(stream, "fileno", None)
    if fileno is not None and hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.posix_fadvise(fileno(), offset, length, os.POSIX_FADV_WILLNEED)


@contextlib.contextmanager
def _part(file: _File) -> Iterator[int]:
    """A descriptor of the file's part, to write at any place. Raises: JobspecError."""
    if file.problem is not None:  # a full disk must not be filled again
        raise file.problem
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(file.data.path, flags, 0o600)
    except OSError as problem:
        raise JobspecError(os_finding(problem, file.work, "writing the copy of")) from problem
    try:
        yield fd
    finally:
        os.close(fd)


def _write(file: _File, fd: int, data: memoryview, position: int) -> None:
    """Raises: JobspecError, so that a full disk is not taken for a fault of the source."""
    try:
        write_at(fd, data, position)
    except OSError as problem:
        raise JobspecError(os_finding(problem, file.work, "writing the copy of")) from problem
