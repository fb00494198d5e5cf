"""Staging on several nodes: each byte leaves shared storage once, the nodes give each other the rest.

Every file is cut into chunks, and `chunks.readers` names the node that reads each chunk. A node reads its
own share into the part of the file. It asks each other node for that node's share, in the same order
everywhere, and gets each chunk as soon as it is written. So all nodes take the time of one node and one
chunk. `transfer` follows each part as it grows, hashes it, and publishes it: as on one node, `transfer`
alone decides what is verified. The swarm leaves out and names a node that is silent, slow, or sends other
bytes, and the next reader takes its share. A node that comes late, or returns with half of the files, asks
for what it lacks.

Standard library only, Python 3.9. The decisions are in `board`, the words that travel in `serving`.
"""

from __future__ import annotations

import collections
import contextlib
import os
import threading
import time
from typing import Callable, Deque, Iterator, Optional, Sequence

from jobspec.finding import JobspecError
from jobspec.runtime.base.channel import ChannelError, Hello, Link, connect
from jobspec.runtime.staging import chunks, serving
from jobspec.runtime.staging.board import SLOW_S, Board, Chunk, File, Peer, Report, Share
from jobspec.runtime.staging.faults import cut_off, os_finding
from jobspec.runtime.staging.serving import PIECE_BYTES, BadChunkError, GoneError
from jobspec.runtime.staging.transfer import (
    OpenSource,
    Stream,
    default_lanes,
    open_local,
    write_at,
)

__all__ = ["Peer", "Swarm"]

# Seconds without a byte after which a connection is made anew; then the node is left out.
PEER_STALL_S = 15.0
RESTARTS = 2
WINDOW_BYTES = 2 * chunks.CHUNK_BYTES  # on their way on one connection
WINDOW_CHUNKS = 64
STREAMS = 4  # connections of a node to all others, at least one to each


class Swarm(Board):
    """This node's part in the job's staging: the board, and the threads that read, ask and answer."""

    def __init__(
        self,
        me: int,
        token: str,
        report: Report = lambda event, data: None,
        stall_s: float = PEER_STALL_S,
        slow_s: float = SLOW_S,
    ) -> None:
        super().__init__(me, report, slow_s)
        self._token, self._stall_s = token, stall_s
        self._open: OpenSource = open_local
        self._listener: Optional[serving.Listener] = None

    def listen(self, ports: Sequence[int]) -> int:
        """Begin to serve; the port. Raises: OSError."""
        self._listener = serving.Listener(ports, self._token, self.find)
        return self.port

    @property
    def port(self) -> int:
        """Where this node serves, 0 before `listen`."""
        return self._listener.port if self._listener is not None else 0

    def meet(
        self,
        peers: Sequence[Peer],
        open_source: OpenSource = open_local,
        lanes: int = 0,
        excused: Callable[[], bool] = lambda: False,
    ) -> None:
        """Begin to fetch. `peers` are all nodes by index, this one among them.

        `lanes` threads read this node's share; others wait for it without end while `excused` says so.
        """
        with self._changed:
            self._peers, self._open, self._excused = tuple(peers), open_source, excused
            self._shares = [Share() for _ in peers]
            self._since = time.monotonic()
        for _ in range(lanes or default_lanes()):
            threading.Thread(target=self._read_share, daemon=True, name="stage-read").start()
        for index in range(len(peers)):
            for _ in range(max(1, STREAMS // max(1, len(peers) - 1)) if index != self.me else 0):
                threading.Thread(target=self._pull, args=(index,), daemon=True, name="stage-pull").start()

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

    def _read(self, chunk: Chunk, buffer: memoryview) -> "tuple[str, int]":
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

    # The others' shares.

    def _pull(self, index: int) -> None:
        """One connection to one node: ask ahead, receive in order, begin anew when it stands still."""
        flying: Deque[Chunk] = collections.deque()
        buffer = memoryview(bytearray(PIECE_BYTES))
        link: Optional[Link] = None
        while True:
            requested = len(flying) if link is not None else 0
            if not flying:
                first = self._take(index, block=True)
                if first is None:
                    break
                flying.append(first)
            try:
                if link is None:
                    link = self._connect(index)
                for chunk in list(flying)[requested:]:
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

    def _ask_ahead(self, index: int, link: Link, flying: "Deque[Chunk]") -> None:
        ahead = sum(chunks.span(chunk.file.data.size, chunk.number)[1] for chunk in flying)
        while ahead < WINDOW_BYTES and len(flying) < WINDOW_CHUNKS:
            chunk = self._take(index, block=False)
            if chunk is None:
                return
            flying.append(chunk)
            ahead += chunks.span(chunk.file.data.size, chunk.number)[1]
            serving.ask(link, chunk.file.id, chunk.number)

    def _receive(self, index: int, link: Link, chunk: Chunk, buffer: memoryview) -> None:
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
    def _arriving(self, index: int, chunk: Chunk) -> Iterator[None]:
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

    def _again(self, index: int, flying: "Deque[Chunk]", problem: str) -> bool:
        """Whether to connect to the node again.

        A node is left out after RESTARTS in vain, or when one chunk fails twice, whatever else it gives.
        """
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


def _read_no_further(stream: Stream, offset: int, length: int) -> None:
    """Ask the kernel for these bytes at once, and for none beyond: what follows another node reads.

    Read-ahead past the end of each chunk cost 0.7 of the model again on two nodes.
    """
    fileno = getattr(stream, "fileno", None)
    if fileno is not None and hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.posix_fadvise(fileno(), offset, length, os.POSIX_FADV_WILLNEED)


@contextlib.contextmanager
def _part(file: File) -> Iterator[int]:
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


def _write(file: File, fd: int, data: memoryview, position: int) -> None:
    """Raises: JobspecError, so that a full disk is not taken for a fault of the source."""
    try:
        write_at(fd, data, position)
    except OSError as problem:
        raise JobspecError(os_finding(problem, file.work, "writing the copy of")) from problem
