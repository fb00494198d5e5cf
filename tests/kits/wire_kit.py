"""Bytes that a stranger, or a peer that has gone mad, may send; the corpus of those that were found."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from jobspec.runtime.base import channel
from jobspec.runtime.base.channel import Link

CORPUS = Path(__file__).parents[1] / "runtime" / "base" / "wire_corpus"
KEY = b"k" * 32
NIGHTLY = settings().max_examples > 100
MANY = settings(max_examples=25_000 if NIGHTLY else 150)  # of each of four tests: 100,000 messages at night
LONG = pytest.mark.timeout(1800 if NIGHTLY else 300)
FEWER = settings(max_examples=4_000 if NIGHTLY else 60)  # of several messages each

_WORDS = [
    channel.MAGIC, channel.MAGIC[:5], bytes(channel.NONCE_BYTES), b"{", b"[" * 5000, b"\n", b'{"nonce":"',
    b"\\ud800", b"0" * 64 + b" ", b'{"get":["a",0]}\n', b"GET / HTTP/1.1\r\n\r\n", channel.WHO.pack(1, b"n"),
    channel._sign("another", "client", bytes(64)), channel._sign("another", "server", bytes(64)),
]  # fmt: skip
strangers = st.lists(st.binary(max_size=80) | st.sampled_from(_WORDS), max_size=6).map(b"".join)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("9" * 5000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
_keys = st.sampled_from(["get", "data", "bytes", "code", "wait", "gone"]) | st.text()
messages = st.dictionaries(_keys, _values)


def corpus(name: str) -> list[bytes]:
    """A line each: the bytes in hex, a blank, what they are."""
    return [bytes.fromhex(line.split(" ")[0]) for line in (CORPUS / f"{name}.txt").read_text().splitlines()]


@contextlib.contextmanager
def told(data: bytes) -> Iterator[socket.socket]:
    """A socket whose other side has said `data` and nothing more."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        other = socket.create_connection(listener.getsockname(), timeout=60)
        ours, _ = listener.accept()
    with other, ours:
        other.sendall(data)
        other.shutdown(socket.SHUT_WR)
        yield ours


@contextlib.contextmanager
def told_by_peer(bodies: list[bytes]) -> Iterator[Link]:
    """A link whose other side knows the token and has said these lines."""
    codes = [channel._code(KEY, b"c", number, body) for number, body in enumerate(bodies)]
    lines = [code + b" " + body + b"\n" for code, body in zip(codes, bodies, strict=True)]
    with told(b"".join(lines)) as sock:
        yield Link(sock, KEY, b"s", b"c")
