"""How nodes hand each other chunks: the listener, one conversation for each connection, and the asking side.

    asks     {"get": [file, chunk]}
    answers  {"data": [file, chunk], "bytes": n, "code": c} and n bytes; {"gone": why}; or, each second,
             {"wait": "own"} while this node has yet to read the chunk, {"wait": "behind"} while it waits
             for another, or the hub has it wait. Several questions may be on their way; answers come in
             their order.

Whoever connects proves the run's token first (`channel`). Only chunks of files that this job stages are
found; nothing takes a path. Standard library only, Python 3.9.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import dataclass
from typing import Callable, List, Optional, Sequence, Tuple, Union

from jobspec.runtime.base.channel import ChannelError, Link, Message, accept, listen
from jobspec.runtime.staging.chunks import code_of, new_code

WAIT_S = 1.0
ACCEPT_PAUSE_S = 0.1
PIECE_BYTES = 256 << 10
NONSENSE = (KeyError, TypeError, ValueError, OverflowError)
MOVED_S = 2.0  # a part that is not at its place is being renamed; longer, and it is gone


@dataclass(frozen=True)
class Piece:
    """Where a chunk lies on this node. `code` is empty while nobody has computed it."""

    path: str
    offset: int
    length: int
    code: str
    strong: bool


@dataclass(frozen=True)
class Wait:
    """Not here yet; `own` where this node itself is to read it and nothing excuses that it has not."""

    own: bool


@dataclass(frozen=True)
class Gone:
    """This node will not have it."""

    why: str


Found = Union[Piece, Wait, Gone]
Find = Callable[[str, int, float], Found]  # (file, chunk, seconds to wait for it)


class GoneError(Exception):
    """The other node does not have the chunk, and says why."""


class BadChunkError(Exception):
    """The bytes that came are not those that were sent."""


class Listener:
    """Accepts the other nodes' connections until `close`."""

    def __init__(self, ports: Sequence[int], token: str, find: Find) -> None:
        self._socket = listen(ports)
        self._token, self._find = token, find
        self._links: List[Link] = []
        self._closed = threading.Event()
        threading.Thread(target=self._accept, daemon=True, name="stage-accept").start()

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                if self._closed.wait(ACCEPT_PAUSE_S):
                    return
                continue  # out of descriptors for now, or the other side hung up meanwhile
            serve = threading.Thread(target=self._serve, args=(sock,), daemon=True, name="stage-serve")
            try:
                serve.start()
            except RuntimeError:  # this user has too many threads for now: the node tries again
                sock.close()

    def _serve(self, sock: socket.socket) -> None:
        try:
            _, link = accept(sock, self._token)
        except ChannelError:
            sock.close()
            return
        self._links.append(link)
        if self._closed.is_set():
            link.close()
        try:
            link.patience(None)  # a node that has all it needs asks for nothing, and is alive all the same
            converse(link, self._find)
        except (ChannelError, OSError):
            pass  # the other side is gone or talks nonsense; it asks again on a new connection
        finally:
            link.close()
            self._links.remove(link)

    def close(self) -> None:
        self._closed.set()
        with contextlib.suppress(OSError):  # it says that it was never connected
            self._socket.shutdown(socket.SHUT_RDWR)  # and still wakes accept(2) on Linux
        self._socket.close()
        for link in list(self._links):
            link.close()


def converse(link: Link, find: Find) -> None:
    """Answer questions until the connection ends. Raises: ChannelError."""
    while True:
        file_id, number = _question(link.receive())
        missing_since: Optional[float] = None
        while True:
            place = find(file_id, number, WAIT_S)
            if isinstance(place, Gone):
                link.send({"gone": place.why})
                break
            if isinstance(place, Wait):
                link.send({"wait": "own" if place.own else "behind"})
                continue
            try:
                _give(link, file_id, number, place)
                break
            except FileNotFoundError:
                now = time.monotonic()
                missing_since = missing_since or now
                if now - missing_since > MOVED_S:
                    link.send({"gone": "its copy was removed"})
                    break
                time.sleep(0.02)


def _question(message: Message) -> Tuple[str, int]:
    try:
        file_id, number = message["get"]
        return str(file_id), int(number)
    except NONSENSE as error:
        raise ChannelError("a question that is none") from error


def _give(link: Link, file_id: str, number: int, piece: Piece) -> None:
    code = piece.code or code_of(piece.path, piece.offset, piece.length, piece.strong)
    with open(piece.path, "rb", buffering=0) as file:
        message = {"data": [file_id, number], "bytes": piece.length, "code": code}
        link.send_file(message, file, piece.offset, piece.length)


def ask(link: Link, file_id: str, number: int) -> None:
    """Send one question. Raises: ChannelError."""
    link.send({"get": [file_id, number]})


def answer(
    link: Link, file_id: str, number: int, stall_s: float, alive: Callable[[], None] = lambda: None
) -> Tuple[int, str]:
    """(length, code) of the chunk that follows on the connection.

    Calls `alive` when the other node says that it waits for a third. Raises: GoneError; ChannelError, also
    when the other node should read the chunk itself and has not done so for `stall_s`.
    """
    since = time.monotonic()
    while True:
        message = link.receive()
        if "gone" in message:
            raise GoneError(str(message["gone"]))
        if message.get("data") == [file_id, number]:
            try:
                return int(message["bytes"]), str(message["code"])
            except NONSENSE as error:
                raise ChannelError("an answer that is none") from error
        if message.get("wait") not in ("own", "behind"):
            raise ChannelError("an answer to another question")
        if message["wait"] == "behind":
            since = time.monotonic()
            alive()
        elif time.monotonic() - since > stall_s:
            raise ChannelError(f"it has not read its share for {stall_s:.0f} s")


def receive(
    link: Link,
    length: int,
    code: str,
    strong: bool,
    write: Callable[[memoryview, int], None],
    buffer: memoryview,
) -> None:
    """Take `length` bytes from the connection: `write(bytes, position)` for each piece.

    Raises: ChannelError; BadChunkError when they do not have `code`.
    """
    digest, position = new_code(strong), 0
    while position < length:
        count = link.receive_into(buffer[: min(len(buffer), length - position)])
        digest.update(buffer[:count])
        write(buffer[:count], position)
        position += count
    if str(digest.hexdigest()) != code:
        raise BadChunkError(f"{length} bytes came with other content than the node sent")
