"""Metric files decoded piece by piece: every byte, every cut, and files that are read from their end."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.runtime.base.event_files import EventDecoder
from jobspec.runtime.base.metric_files import LineDecoder, Row, Tail, group_prefix, kind_of
from jobspec.runtime.base.run_files import MAX_LINE_BYTES

# Two records without checksums: the version line, and `diff` = 2.0 at step 7.
SAMPLE = bytes.fromhex(
    "18000000000000000000000009000000000000f03f1a0d627261696e2e4576656e743a3200000000"
    "1a000000000000000000000009000000000000f03f10072a0d0a0b0a0464696666150000004000000000"
)  # fmt: skip
LINES = b'{"step": 1, "a": 1}\n\n[1]\n{"b": nul\n{"b": {"c": null}, "d": true}\r\n{"a": 2}'


def test_sample_is_what_it_says() -> None:
    assert EventDecoder("e").feed(SAMPLE) == [Row("diff", 7, 2.0, 1.0, "e")]


@given(st.lists(st.integers(0, len(SAMPLE)), max_size=5))
def test_event_file_in_pieces_says_what_the_whole_says(cuts: list[int]) -> None:
    decoder = EventDecoder()
    edges = [0, *sorted(cuts), len(SAMPLE)]
    rows = [row for start, end in pairwise(edges) for row in decoder.feed(SAMPLE[start:end])]
    assert (rows, decoder.rest, decoder.damage) == (EventDecoder().feed(SAMPLE), b"", "")


@given(st.binary(max_size=200))
def test_any_bytes_end_in_rows_or_a_named_damage(data: bytes) -> None:
    decoder = EventDecoder()
    decoder.feed(data)
    assert not (decoder.damage and decoder.rest)


@given(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255))
def test_a_changed_byte_is_survived(at: int, byte: int) -> None:
    changed = bytearray(SAMPLE)
    changed[at] = byte
    assert len(EventDecoder().feed(bytes(changed))) <= 2


def test_nothing_behind_damage_is_read() -> None:
    decoder = EventDecoder()
    assert decoder.feed(SAMPLE + b"\xff" * 16) == EventDecoder().feed(SAMPLE)
    assert decoder.damage == f"a record of {2**64 - 1} bytes"
    assert decoder.feed(SAMPLE) == []


@given(st.lists(st.integers(0, len(LINES)), max_size=5))
def test_lines_in_pieces_say_what_the_whole_says(cuts: list[int]) -> None:
    decoder = LineDecoder("m")
    edges = [0, *sorted(cuts), len(LINES)]
    rows = [row for start, end in pairwise(edges) for row in decoder.feed(LINES[start:end])]
    assert [(row.metric, row.step, row.line) for row in rows] == [("a", 1, 1), ("b/c", None, 5)]
    assert decoder.torn == [4]
    assert decoder.last() == decoder.last() == [Row("a", None, 2.0, None, "m", 6)]
    assert decoder.close() == [Row("a", None, 2.0, None, "m", 6)]


def test_object_too_deep_is_a_torn_line() -> None:
    decoder = LineDecoder()
    assert decoder.feed(b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n") == []
    assert decoder.torn == [1]


def test_tail_gives_what_is_new_and_a_shorter_file_anew(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    tail = Tail(path, lambda cut: LineDecoder())
    assert (tail.read(), tail.changed) == ([], False)
    path.write_bytes(b'{"a": 1}\n{"a": 2')
    assert [row.value for row in tail.read()] == [1.0]
    assert (tail.last(), tail.changed, tail.anew) == ([], True, False)
    path.write_bytes(b'{"a": 1}\n{"a": 2}')
    assert (tail.read(), [row.value for row in tail.last()]) == ([], [2.0])
    path.write_bytes(b'{"a": 9}\n')
    assert ([row.value for row in tail.read()], tail.anew) == ([9.0], True)
    assert (tail.read(), tail.changed) == ([], False)


def test_tail_of_the_end_tells_its_decoder_of_the_cut(tmp_path: Path) -> None:
    path, cuts = tmp_path / "m.jsonl", list[bool]()
    tail = Tail(path, lambda cut: cuts.append(cut) or LineDecoder(), only_end=12)
    path.write_bytes(b'{"a": 1}\n{"a": 2}\n')
    assert ([row.value for row in tail.read()], cuts) == ([2.0], [False, True])


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("@a/m.jsonl", "a/"), ("@a/b/m.jsonl", "a/"), ("@a", ""), ("@/m", ""), ("a/@b/m", ""), ("m", "")],
)
def test_group_is_the_first_folder(name: str, prefix: str) -> None:
    assert group_prefix(Path("/x") / name, Path("/x")) == prefix


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("m.jsonl", "JSON lines"),
        ("m.json", "JSON dump"),
        ("events.out.tfevents.1.host", "event file"),
        ("tfevents.jsonl", "JSON lines"),
        ("m.jsonl.bak", ""),
        ("m.csv", "CSV table"),
        ("run-x.wandb", "wandb history"),
        ("mlruns/0/a/metrics/train/loss", "MLflow series"),
    ],
)
def test_name_says_the_kind(name: str, kind: str) -> None:
    assert kind_of(Path(name)) == kind


@pytest.mark.parametrize("byte", [b"\0", b"x"])
def test_line_without_an_end_fills_no_memory(byte: bytes) -> None:
    decoder = LineDecoder()
    for _ in range(40):
        assert decoder.feed(byte * 1024**2) == []
        assert len(decoder._rest) <= MAX_LINE_BYTES
    rows = decoder.feed(b'{"step": 1, "loss": 2}\n{"step": 2, "loss": 0.5}\n')
    assert [(row.step, row.value) for row in rows if row.metric == "loss"] == [(2, 0.5)]
    assert decoder.torn == [1]
