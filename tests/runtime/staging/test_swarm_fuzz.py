"""A node that knows the token and talks nonsense is a ChannelError to those who serve and ask it."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.runtime.base.channel import ChannelError
from jobspec.runtime.staging import serving
from jobspec.runtime.staging.serving import Gone, GoneError
from tests.kits.wire_kit import FEWER, LONG, corpus, messages, told_by_peer

pytestmark = LONG


def serve(bodies: list[bytes]) -> list[tuple[str, int]]:
    """The questions that were understood before the connection ended."""
    asked: list[tuple[str, int]] = []

    def find(file_id: str, number: int, _seconds: float) -> Gone:
        asked.append((file_id, number))
        return Gone("no such file")

    with told_by_peer(bodies) as link, pytest.raises(ChannelError):
        serving.converse(link, find)
    return asked


def ask(bodies: list[bytes]) -> tuple[int, str] | None:
    with told_by_peer(bodies) as link, contextlib.suppress(ChannelError, GoneError):
        return serving.answer(link, "f", 0, 60.0)
    return None


@FEWER
@given(st.lists(messages, max_size=3))
def test_nonsense_of_a_peer_ends_the_conversation(said: list[dict[str, Any]]) -> None:
    bodies = [json.dumps(message).encode() for message in said]
    for file_id, number in serve(bodies):
        assert (type(file_id), type(number)) == (str, int)
    ask(bodies)


def test_corpus() -> None:
    for body in corpus("bodies"):
        assert serve([body]) == []
        assert ask([body]) is None


def test_sense_is_understood() -> None:
    assert serve([b'{"get":["a",1]}', b'{"get":["b",2]}']) == [("a", 1), ("b", 2)]
    assert ask([b'{"wait":"behind"}', b'{"data":["f",0],"bytes":7,"code":"c"}']) == (7, "c")
