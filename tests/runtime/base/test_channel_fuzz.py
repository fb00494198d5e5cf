"""Whatever comes over the wire, a connection ends by a ChannelError: nothing else, and nothing is believed.

Bytes that Hypothesis finds go into `wire_corpus`, which every run tries; `make nightly` tries 100,000 more.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.runtime.base import channel
from jobspec.runtime.base.channel import ChannelError, Hello, Link
from tests.kits.wire_kit import KEY, LONG, MANY, corpus, strangers, told, told_by_peer

pytestmark = LONG
TOKEN = "ab" * 32


def accept(data: bytes) -> None:
    with told(data) as sock, pytest.raises(ChannelError):
        channel.accept(sock, TOKEN)


def connect(data: bytes) -> None:
    with told(data) as sock, pytest.MonkeyPatch.context() as patch, pytest.raises(ChannelError):
        patch.setattr(socket, "create_connection", lambda *_, **__: sock)
        channel.connect("n0", 1, TOKEN, Hello(1, "n1"))


def receive(data: bytes) -> None:
    with told(data) as sock, pytest.raises(ChannelError):
        Link(sock, KEY, b"s", b"c").receive()


def believe(body: bytes) -> None:
    with told_by_peer([body]) as link, contextlib.suppress(ChannelError):
        assert isinstance(link.receive(), dict)


@MANY
@given(strangers)
def test_head_believes_no_stranger(data: bytes) -> None:
    accept(data)


@MANY
@given(strangers)
def test_worker_believes_no_stranger(data: bytes) -> None:
    connect(data)


@MANY
@given(strangers)
def test_line_without_its_code_is_no_message(data: bytes) -> None:
    receive(data)


@MANY
@given(strangers.map(lambda data: data.replace(b"\n", b"")) | st.text().map(str.encode))
def test_line_of_a_peer_is_an_object_or_an_end(body: bytes) -> None:
    believe(body.replace(b"\n", b""))


@pytest.mark.parametrize("name", ["strangers", "lines", "bodies"])
@pytest.mark.parametrize("way", [accept, connect, receive, believe])
def test_corpus(name: str, way: Any) -> None:
    for data in corpus(name):
        way(data.replace(b"\n", b"") if way is believe else data)


def test_peer_who_follows_the_rules_is_believed() -> None:
    """Else all of the above would pass with a channel that refuses everybody."""
    with told_by_peer([b'{"a":1}', b'{"b":2}']) as link:
        assert [link.receive(), link.receive()] == [{"a": 1}, {"b": 2}]
