import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobspec.runtime.base import channel
from jobspec.runtime.base.channel import (
    ChannelError,
    EndedError,
    Hello,
    Link,
    accept,
    candidate_ports,
    connect,
    find_head,
    listen,
)
from jobspec.runtime.base.identity import Identity
from jobspec.runtime.head.nodes import Nodes

TOKEN = "ab" * 32


@contextlib.contextmanager
def server(token: str = TOKEN) -> Iterator[tuple[int, list[Any]]]:
    """A listener for one connection, and those that only look; the list gets (hello, link) or the error."""
    sock = listen([0])
    got: list[Any] = []

    def serve() -> None:
        while not got:
            try:
                got.append(accept(sock.accept()[0], token))
            except EndedError:
                continue
            except (ChannelError, OSError) as error:
                got.append(error)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield sock.getsockname()[1], got
    thread.join(60)
    sock.close()


def pair() -> tuple[Link, Link, Hello]:
    with server() as (port, got):
        client = connect("127.0.0.1", port, TOKEN, Hello(3, "n3"))
    hello, link = got[0]
    return link, client, hello


def test_messages_pass_in_both_directions() -> None:
    head, worker, hello = pair()
    assert hello == Hello(3, "n3")
    worker.send({"a": "ü\n"})
    head.send({"b": [1]})
    assert (head.receive(), worker.receive()) == ({"a": "ü\n"}, {"b": [1]})


def test_wrong_token_is_refused_by_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "HANDSHAKE_S", 2.0)
    with server("cd" * 32) as (port, got), pytest.raises(ChannelError):
        connect("127.0.0.1", port, TOKEN, Hello(1, "n1"))
    assert isinstance(got[0], ChannelError)
    assert "token of another run" in str(got[0])


def stranger(*says: bytes, seen: list[bytes] | None = None) -> int:
    """The port of a listener that says these bytes, each but the first after it was told something."""
    sock = listen([0])

    def serve() -> None:
        while True:
            peer, _ = sock.accept()
            with peer, contextlib.suppress(OSError):
                for data in says:
                    peer.sendall(data)
                    heard = peer.recv(4096)
                    if seen is not None:
                        seen.append(heard)

    threading.Thread(target=serve, daemon=True).start()
    return int(sock.getsockname()[1])


def test_listener_without_the_token_is_not_believed() -> None:
    """Somebody else's listener that answers in our format learns nothing and is left."""
    seen: list[bytes] = []
    port = stranger(channel.MAGIC + bytes(32), bytes(32), seen=seen)
    with pytest.raises(ChannelError, match="does not know this run's token"):
        connect("127.0.0.1", port, TOKEN, Hello(1, "n1"))
    assert TOKEN.encode() not in b"".join(seen)
    assert b"n1" not in b"".join(seen)


GREETINGS = [  # what a stranger's listener may say, and what else listens on a port
    (b'{"v":1,"nonce":"\\ud800"}\n',),
    (b'{"v":1,"nonce":"aa"}\n', '{"proof":"éé"}\n'.encode()),
    (b"[" * 60_000 + b"\n",),
    (b"\xff\xfe" * 4,),
    (b"SSH-2.0-OpenSSH_9.6\r\n",),
    (channel.MAGIC + bytes(32), b"\xff" * 31),
    (channel.MAGIC, b""),
]


@pytest.mark.parametrize("says", GREETINGS)
def test_worker_goes_on_to_the_next_port_whatever_a_stranger_says(
    says: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "HANDSHAKE_S", 1.0)
    with server() as (port, got):
        find_head(["127.0.0.1"], [stranger(*says), port], TOKEN, Hello(1, "n1"), 60).close()
    assert got[0][0] == Hello(1, "n1")


HELLOS = [  # what a stranger may say to the head
    '{"nonce":"a","index":1,"name":"n","proof":"éé"}\n'.encode(),
    b'{"nonce":"a","index":1e999,"name":"n","proof":"x"}\n',
    b'{"nonce":"a","index":1,"name":"\\ud800","proof":"x"}\n',
    b'{"nonce":"\\ud800","index":1,"name":"n","proof":"x"}\n',
    b"[" * 4000,
    channel.MAGIC + b"\xff" * 4000,
]


@pytest.mark.parametrize("says", HELLOS)
def test_head_refuses_a_stranger_whatever_it_says(says: bytes) -> None:
    refused: list[str] = []
    who = Identity(Path("/run"), 1, 0, ("head", "n1"), TOKEN)
    nodes = Nodes(who, *[lambda *_: None] * 3, lambda _, why: refused.append(why))  # type: ignore[arg-type]
    with socket.create_connection(("127.0.0.1", nodes.listen([0])), timeout=60) as sock:
        sock.sendall(says)
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(4096):
                pass
    nodes.close(0)
    assert (nodes.refused, len(refused)) == (1, 1)


def test_one_deadline_holds_for_the_whole_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then is no progress: the one who sends them would hold a thread for ever."""
    monkeypatch.setattr(channel, "HANDSHAKE_S", 0.5)
    with server() as (port, got), socket.create_connection(("127.0.0.1", port)) as sock:
        for byte in channel.MAGIC + bytes(64):
            if not got:
                sock.sendall(bytes([byte]))
                time.sleep(0.1)
    assert str(got[0]) == "no handshake within 0 s"


BOTH_STAND_STILL = """
import os, signal, sys, threading, time
from jobspec.runtime.base import channel
channel.HEARTBEAT_S, channel.SLICE_S, channel.STANDSTILL_S, channel.SILENCE_S = 0.2, 0.2, 0.5, 1.0
sock = channel.listen([0])
worker = os.fork()
if worker == 0:
    link = channel.connect("127.0.0.1", sock.getsockname()[1], "t", channel.Hello(1, "n1"))
else:
    link = channel.accept(sock.accept()[0], "t")[1]
    if os.fork() == 0:
        time.sleep(0.5)
        for pid in (worker, os.getppid()):
            os.kill(pid, signal.SIGSTOP)
        time.sleep(3)
        os.kill(os.getppid(), signal.SIGCONT)
        time.sleep(0.5)  # the head is back before the worker says anything
        os.kill(worker, signal.SIGCONT)
        os._exit(0)
threading.Thread(target=channel.keep_alive, args=(link, threading.Event()), daemon=True).start()
end = time.monotonic() + 6
while time.monotonic() < end:
    link.receive()
link.send({"heartbeat": 1})
if worker == 0:
    os._exit(0)
assert os.waitpid(worker, 0)[1] == 0
"""


def test_own_standstill_is_not_the_others_silence() -> None:
    """`scontrol suspend` stops all processes of a job; `resume` wakes them one after the other."""
    script = BOTH_STAND_STILL
    assert subprocess.run([sys.executable, "-c", script], timeout=120).returncode == 0


@pytest.mark.parametrize("change", ["replay", "forge", "redirect"])
def test_foreign_line_ends_the_connection(change: str) -> None:
    head, worker, _ = pair()
    body = b'{"bye":0}'
    good = channel._code(head._key, b"s", 0, body) + b" " + body + b"\n"
    lines = {
        "replay": good + good,
        "forge": b"0" * 64 + b" " + body + b"\n",
        "redirect": channel._code(head._key, b"c", 0, body) + b" " + body + b"\n",
    }
    head._socket.sendall(lines[change])
    with pytest.raises(ChannelError, match="authentication code"):
        for _ in range(2):
            worker.receive()


def test_end_of_connection_is_an_error() -> None:
    head, worker, _ = pair()
    head.close()
    with pytest.raises(ChannelError, match="closed"):
        worker.receive()


def test_silence_is_an_error() -> None:
    head, worker, _ = pair()
    worker.patience(0.2)
    with pytest.raises(ChannelError, match="silent"):
        worker.receive()
    head.close()


def test_silence_before_a_line_is_told() -> None:
    head, worker, _ = pair()
    late = threading.Timer(0.5, head.send, args=({"x": 1},))
    late.start()
    assert worker.receive() == {"x": 1}
    assert worker.quiet_s > 0.1
    head.send({"x": 2})
    late.join()
    head.close()


def test_host_answers_also_by_a_refusal() -> None:
    listener = listen([0])
    address = ("127.0.0.1", int(listener.getsockname()[1]))
    assert channel.answers(address)
    listener.close()
    assert channel.answers(address)
    assert not channel.answers(("no-such-host.invalid", 1))


def turn_away(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            listener.accept()[0].close()


def test_worker_finds_head_among_other_listeners() -> None:
    """On a shared node the first candidate port may belong to another job."""
    other = listen([0])
    with server() as (port, _):
        ports = [other.getsockname()[1], port]
        threading.Thread(target=turn_away, args=(other,), daemon=True).start()
        find_head(["no-such-host.invalid", "127.0.0.1"], ports, TOKEN, Hello(1, "n1"), 60).close()
    other.close()


def test_not_found_names_what_was_tried() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(ChannelError, match=f"127.0.0.1:{port}"):
            find_head(["127.0.0.1"], [port], TOKEN, Hello(1, "n1"), 0.3)


@pytest.mark.parametrize("known", ["127.0.0.2", "no-such-host.invalid"])
def test_name_of_the_head_is_taken_wherever_it_answers(monkeypatch: pytest.MonkeyPatch, known: str) -> None:
    """The head begins to listen just after its name was refused; the other address is for a lame name."""
    joined: list[str] = []
    refused: list[str] = []
    who = Identity(Path("/run"), 1, 0, ("head", "n1"), TOKEN)
    nodes = Nodes(
        who,
        lambda *_: None,
        lambda _, address: joined.append(address),
        lambda *_: None,
        lambda address, _: refused.append(address),
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    connect_now, asked = channel.connect, []

    def late(host: str, *rest: Any) -> Link:
        asked.append(host)
        try:
            return connect_now(host, *rest)
        except OSError:
            if len(asked) == 1:
                nodes.listen([port])
            raise

    monkeypatch.setattr(channel, "connect", late)
    link = find_head([known, "127.0.0.1"], [port], TOKEN, Hello(1, "n1"), 60)
    nodes.wait_connected(60)
    there = "127.0.0.2" if known == "127.0.0.2" else "127.0.0.1"
    assert (link.peer_ip, nodes.local_ip()) == (there, there)
    assert len(joined) == 1
    assert (refused, nodes.refused) == ([], 0)
    link.close()
    nodes.close(0)


def test_who_is_told_to_end_still_tells_the_head_but_looks_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "HURRY_S", 2.0)
    with contextlib.ExitStack() as stack, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        ports = [unused.getsockname()[1]]

        def hurry() -> bool:  # from now on there is a head
            ports.append(stack.enter_context(server())[0])
            return True

        find_head(["127.0.0.1"], ports, TOKEN, Hello(1, "n1"), 60, hurry).close()
        asked: list[int] = []
        with pytest.raises(ChannelError, match="refused"):
            find_head(["127.0.0.1"], ports[:1], TOKEN, Hello(1, "n1"), 10**6, lambda: not asked.append(1))
        assert asked == [1]


def test_candidates_lie_below_the_ephemeral_range() -> None:
    ports = {port for number in range(200) for port in candidate_ports(str(number))}
    assert min(ports) >= 24000
    assert max(ports) < 32768
    assert len(candidate_ports("1")) == 8
