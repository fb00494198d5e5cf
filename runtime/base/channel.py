"""The connection between a worker's agent and the head's: TCP, authenticated, watched.

Both sides prove that they know the run's token (HMAC-SHA256 over fresh nonces) before either
reads a word; the token itself never travels. All bytes of this handshake come in frames of a fixed
size, so there is nothing in them to parse, and one deadline holds for all of them together:

    server  MAGIC, its nonce
    client  MAGIC, its nonce, its proof
    server  its proof
    client  who it is, and the code of that

Each line then carries the code of its content, direction and number, under a key of this connection
alone, so nothing can be injected, replayed or reordered. The content is not encrypted: no secret is
ever sent.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import select
import socket
import struct
import threading
import time
from dataclasses import dataclass
from typing import IO, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

HEARTBEAT_S = 1.0
SILENCE_S = 8.0  # no line for this long: the other side is dead
MORE_S = 2.0  # where its host still answers
ANSWER_S = 0.5
QUIET_S = 3.0  # no line for this long, and then one again: worth a word
SLICE_S = 1.0  # a wait is cut into slices: one that takes much longer shows that this process stood still
STANDSTILL_S = 2.0
HANDSHAKE_S = 5.0  # from the first byte to the last
CONNECT_S = 2.0
HURRY_S = 5.0  # for a node that is told to end to tell the head, if it can be found at all
MAX_LINE_BYTES = 16 * 1024 * 1024  # a node's longest reply lists its collected files
MAGIC = b"jobspec2"
NONCE_BYTES = PROOF_BYTES = 32
WHO = struct.Struct(">I256s")  # index, name
READ_BYTES = 64 * 1024
PORTS_FROM, PORTS_SPAN, PORT_CANDIDATES = 24000, 5000, 8  # below every usual ephemeral range

Message = Dict[str, Any]


class ChannelError(Exception):
    """The other side is not who it claims to be, or is gone. The text says which."""


class EndedError(ChannelError):
    """The other side is gone, or has given up."""


def candidate_ports(key: str) -> Tuple[int, ...]:
    """The ports that a run's head may listen on, the same on every node. `key` names the job step."""
    digest = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big")
    first = PORTS_FROM + digest % PORTS_SPAN
    return tuple(range(first, first + PORT_CANDIDATES))


@dataclass(frozen=True)
class Hello:
    """Who connects."""

    index: int
    name: str


class Link:
    """One authenticated connection. One thread may receive while others send."""

    def __init__(self, sock: socket.socket, key: bytes, sends: bytes, receives: bytes) -> None:
        self._socket = sock
        self._key = key
        self._sends, self._receives = sends, receives
        self._sent = self._received = 0
        self._rest = b""
        self.quiet_s = 0.0  # the longest silence before or within the last message
        self._lock = threading.Lock()
        # Now: a connection that the other side has reset has no address any more.
        self.local_ip = str(sock.getsockname()[0])
        self._peer = sock.getpeername()[:2]
        self.peer_ip = str(self._peer[0])
        self.patience(SILENCE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message. Raises: ChannelError when the connection is gone."""
        body = json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode()
        with self._lock:
            code = _code(self._key, self._sends, self._sent, body)
            self._sent += 1
            try:
                self._socket.sendall(code + b" " + body + b"\n")
            except OSError as error:
                raise ChannelError(f"sending failed: {error}") from error

    def receive(self) -> Message:
        """The next message. Raises: ChannelError at the end, after silence, or on a forged line."""
        line = self._line()
        code, _, body = line.partition(b" ")
        if not hmac.compare_digest(code, _code(self._key, self._receives, self._received, body)):
            raise ChannelError("a line with a wrong authentication code")
        self._received += 1
        try:
            message = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise ChannelError("a line that is not JSON") from error
        if not isinstance(message, dict):
            raise ChannelError("a line that is not an object")
        return message

    def _line(self) -> bytes:
        self.quiet_s = 0.0
        buffer = memoryview(bytearray(READ_BYTES))
        chunks, size = [self._rest], len(self._rest)
        while b"\n" not in chunks[-1]:
            if size > MAX_LINE_BYTES:
                raise ChannelError("a line that is too long")
            count = self._receive_into(buffer)
            chunks.append(bytes(buffer[:count]))
            size += count
        line, _, self._rest = b"".join(chunks).partition(b"\n")
        return line

    def _receive_into(self, view: memoryview) -> int:
        """How many bytes came, at least one. Raises: ChannelError at the end or after silence."""
        try:
            if self._patience is not None:
                self.quiet_s = max(self.quiet_s, _wait_for_bytes(self._socket, self._patience, self._peer))
            count = self._socket.recv_into(view)
        except (OSError, ValueError) as error:  # ValueError: this side has closed it
            raise EndedError(f"connection lost: {error}") from error
        if not count:
            raise EndedError("connection closed")
        return count

    def patience(self, seconds: Optional[float]) -> None:
        """How long a receive or send may stand still; None for ever."""
        self._patience = seconds
        self._socket.settimeout(seconds)

    def send_file(self, message: Mapping[str, Any], file: IO[bytes], offset: int, count: int) -> None:
        """Send one message and, behind it, bytes of a file, by sendfile(2). They carry no code of their own.

        Raises: ChannelError when the connection is gone, or the file ends early.
        """
        self.send(message)
        try:
            with self._lock:
                sent = self._socket.sendfile(file, offset, count) if count else 0
        except OSError as error:
            raise ChannelError(f"sending failed: {error}") from error
        if sent != count:
            raise ChannelError(f"the file ended after {sent} of {count} bytes")

    def receive_into(self, view: memoryview) -> int:
        """Bytes that follow a message, at least one. Raises: ChannelError at the end or after silence."""
        if self._rest:
            count = min(len(view), len(self._rest))
            view[:count] = self._rest[:count]
            self._rest = self._rest[count:]
            return count
        return self._receive_into(view)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def keep_alive(link: Link, stopped: threading.Event) -> None:
    """Send heartbeats until `stopped` or the connection ends. Runs in its own thread."""
    while not stopped.wait(HEARTBEAT_S):
        try:
            link.send({"heartbeat": 1})
        except ChannelError:
            return  # the receiving side of this link reports it


def listen(ports: Sequence[int], host: str = "") -> socket.socket:
    """A socket listening on the first free candidate, at all addresses without `host`.

    Raises: OSError when all are taken.
    """
    last: Optional[OSError] = None
    for port in ports:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            # Without SO_REUSEADDR a port with old connections in TIME_WAIT counts as taken.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
            sock.listen(1024)
            return sock
        except OSError as error:
            sock.close()
            last = error
    raise last if last is not None else OSError("no port to listen on")


def accept(sock: socket.socket, token: str) -> Tuple[Hello, Link]:
    """The server's side of the handshake on an accepted socket. Raises: ChannelError, whatever comes."""
    end = time.monotonic() + HANDSHAKE_S
    try:
        ours = os.urandom(NONCE_BYTES)
        _give(sock, MAGIC + ours)
        theirs, proof = _cut(_take(sock, NONCE_BYTES + PROOF_BYTES, end, MAGIC), NONCE_BYTES)
        said = ours + theirs
        if not hmac.compare_digest(proof, _sign(token, "client", said)):
            raise ChannelError("the token of another run, or none")
        _give(sock, _sign(token, "server", said))
        # The last word is the client's: one that has given up will try again, and must not count as lost.
        who, code = _cut(_take(sock, WHO.size + PROOF_BYTES, end), WHO.size)
        if not hmac.compare_digest(code, _sign(token, "hello", said + who)):
            raise ChannelError("a hello with a wrong authentication code")
        index, name = WHO.unpack(who)
        return (
            Hello(index, name.rstrip(b"\0").decode("utf-8", "replace")),
            Link(sock, _sign(token, "session", said), b"s", b"c"),
        )
    except OSError as error:
        raise EndedError(f"connection lost: {error}") from error


def connect(host: str, port: int, token: str, hello: Hello) -> Link:
    """The client's side. Raises: OSError when nobody listens, ChannelError when it is another run."""
    sock = socket.create_connection((host, port), timeout=CONNECT_S)
    end = time.monotonic() + HANDSHAKE_S
    try:
        theirs = _take(sock, NONCE_BYTES, end, MAGIC)
        ours = os.urandom(NONCE_BYTES)
        said = theirs + ours
        _give(sock, MAGIC + ours + _sign(token, "client", said))
        if not hmac.compare_digest(_take(sock, PROOF_BYTES, end), _sign(token, "server", said)):
            raise ChannelError("the listener does not know this run's token")
        who = WHO.pack(hello.index, hello.name.encode("utf-8", "replace"))
        _give(sock, who + _sign(token, "hello", said + who))
        return Link(sock, _sign(token, "session", said), b"c", b"s")
    except (ChannelError, OSError):
        sock.close()
        raise


def find_head(
    hosts: Sequence[str],
    ports: Sequence[int],
    token: str,
    hello: Hello,
    deadline_s: float,
    hurry: Callable[[], bool] = lambda: False,
) -> Link:
    """The connection to the first listener that proves the token; hosts and ports are tried in turn.

    Of several hosts that answer, the earliest counts. The search ends 5 s after `hurry()` turns true.
    Raises: ChannelError after `deadline_s`, with the last answer of every host.
    """
    end = time.monotonic() + deadline_s
    answers: Dict[str, str] = {}
    pause = 0.02
    while True:
        for place, host in enumerate(hosts):
            for port in ports:
                try:
                    return _connect_first(hosts[: place + 1], port, token, hello)
                except (OSError, ChannelError) as error:
                    answers[f"{host}:{port}"] = str(error)
                    if isinstance(error, socket.gaierror):
                        break
        if hurry():
            end, hurry = min(end, time.monotonic() + HURRY_S), lambda: False
        if time.monotonic() + pause > end:
            raise ChannelError("; ".join(f"{place}: {text}" for place, text in _telling(answers)))
        time.sleep(pause)
        pause = min(pause * 1.5, 0.5)


def _connect_first(hosts: Sequence[str], port: int, token: str, hello: Hello) -> Link:
    """Connect to the last of `hosts`, or to one before it that answers by now.

    The head may begin to listen just after the attempt at an earlier host. The choice must not depend on
    that: Ray and the ranks meet at the address taken, and another host may be on a slower network.
    """
    if len(hosts) > 1:
        socket.create_connection((hosts[-1], port), timeout=CONNECT_S).close()
        for earlier in hosts[:-1]:
            with contextlib.suppress(OSError, ChannelError):
                return connect(earlier, port, token, hello)
    return connect(hosts[-1], port, token, hello)


def _telling(answers: Mapping[str, str]) -> List[Tuple[str, str]]:
    """The answers that help: a refused connection says little beside a listener's wrong answer."""
    telling = [(place, text) for place, text in answers.items() if "refused" not in text]
    return telling or list(answers.items())[:2]


def _code(key: bytes, direction: bytes, number: int, body: bytes) -> bytes:
    return hmac.new(key, direction + number.to_bytes(8, "big") + body, hashlib.sha256).hexdigest().encode()


def _sign(token: str, what: str, said: bytes) -> bytes:
    return hmac.new(token.encode(), f"jobspec/2|{what}|".encode() + said, hashlib.sha256).digest()


def _give(sock: socket.socket, data: bytes) -> None:
    """Send what always fits into the socket's buffer."""
    try:
        sock.sendall(data)
    except OSError as error:
        raise EndedError(f"sending failed: {error}") from error


def _take(sock: socket.socket, count: int, end: float, begin: bytes = b"") -> bytes:
    """Exactly `count` bytes that follow `begin`, before `end`. Raises: ChannelError.

    A stranger is known by its first byte: nobody waits for more of them.
    """
    data = b""
    while len(data) < len(begin) + count:
        left = end - time.monotonic()
        try:
            if left <= 0:
                raise socket.timeout
            sock.settimeout(left)
            more = sock.recv(len(begin) + count - len(data))
        except socket.timeout as error:
            raise ChannelError(f"no handshake within {HANDSHAKE_S:.0f} s") from error
        except OSError as error:
            raise EndedError(f"connection lost: {error}") from error
        if not more:
            raise EndedError("connection closed")
        data += more
        if not begin.startswith(data[: len(begin)]):
            raise ChannelError("not a jobspec agent")
    return data[len(begin) :]


def _cut(data: bytes, at: int) -> Tuple[bytes, bytes]:
    return data[:at], data[at:]


def answers(address: Tuple[str, int]) -> bool:
    """Whether a kernel answers there, and be it by a refusal: the host is up, and so is the way to it."""
    try:
        socket.create_connection(address, timeout=ANSWER_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def _wait_for_bytes(sock: socket.socket, patience_s: float, peer: Tuple[str, int]) -> float:
    """Return when there is something to read, with the seconds waited. Raises: ChannelError after silence.

    The time in which this process itself stood still (`scontrol suspend`) says nothing of the other side.
    TCP sends again 7 to 9 s after the last line when the link was broken for 5 s: a host that answers gets
    some more time.
    """
    poller = select.poll()  # of any number of descriptors, unlike select(2)
    poller.register(sock, select.POLLIN)
    slice_s, quiet = min(SLICE_S, patience_s), 0.0
    while True:
        before = time.monotonic()
        ready = poller.poll(slice_s * 1000)
        took = time.monotonic() - before
        quiet = 0.0 if took > slice_s + STANDSTILL_S else quiet + took
        if ready:
            return quiet
        if quiet >= patience_s and not (quiet < patience_s + MORE_S and answers(peer)):
            raise ChannelError(f"silent for {quiet:.0f} s")
