"""The search for hints against a plain one that looks for each hint in each state of each line."""

from __future__ import annotations

import random
from io import BytesIO
from pathlib import Path

import pytest

from jobspec import log_search
from jobspec.log_search import FoundLine, Hints, find_in, find_lines
from jobspec.triage.hint_index import HintIndex

HINTS = ("oom", "nan", "Error", "step 12", "out of memory", "\u2022 Loss", "+ ", "Saved checkpoint to", "x")
WORDS = (
    b"step",
    b"rank",
    b"loss",
    b"Err",
    b"or",
    b"mem",
    b"of",
    b"o",
    b"om",
    b"7",
    b"12",
    b" ",
    b"  ",
    b"\x00",
)
ODD = (b"\xff", b"\xd8\x00", b"\xe2\x80", b"\x00\xd8\x00\xdc", b"\xef\xbf\xbd", b"\x1b[36m", b"\xdf")


def plainly(data: bytes, hints: tuple[str, ...] = HINTS) -> list[FoundLine]:
    return [
        FoundLine(number, part.decode("utf-8", "replace"), held)
        for number, line in enumerate(data.split(b"\n"), 1)
        for part in line.split(b"\r")
        if (held := tuple(hint for hint in sorted(hints) if hint.encode() in part))
    ]


def quickly(data: bytes, hints: tuple[str, ...] = HINTS) -> list[FoundLine]:
    return list(find_in(BytesIO(data), Hints(hints)))


def mixture(draw: random.Random) -> bytes:
    """Lines of words, hints and odd bytes, ended in every way, with progress bars; the last may be torn."""
    parts = (*WORDS, *ODD, *(hint.encode() for hint in HINTS))
    weights = [draw.random() ** 3 for _ in parts]
    ends = draw.choice([[b"\n"], [b"\r\n"], [b"\n", b"\r", b"\r\n", b"\n\n"]])
    lines = [
        b"".join(draw.choices(parts, weights, k=draw.randint(0, 12))) for _ in range(draw.randint(1, 80))
    ]
    lines *= draw.choice([1, 1, 4])
    data = b"".join(line + draw.choice(ends) for line in lines)
    return data[: len(data) - draw.choice([0, 0, draw.randint(0, 40)])]


@pytest.mark.parametrize("piece", [1, 7, 64 * 1024])
@pytest.mark.parametrize("seed", range(100))
def test_mixture_is_read_as_line_by_line(seed: int, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    data = mixture(draw)
    longest = max(map(len, data.split(b"\n"))) + 1
    monkeypatch.setattr(log_search, "PIECE_BYTES", piece)
    monkeypatch.setattr(log_search, "BLOCK_BYTES", longest + draw.randint(0, 300))
    assert quickly(data) == plainly(data)


@pytest.mark.parametrize("piece", [5, 64 * 1024])
def test_every_hint_of_triage_is_found_at_every_place(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "PIECE_BYTES", piece)
    hints = HintIndex().hints
    for hint, texts in hints.hints.items():
        for line in (hint, b"x" + hint, b"(" + hint + b"y) z", b"ab" + hint):
            for text in (line, b"quiet\n" + line, line + b"\nquiet\n", b"quiet\n\n" + line + b"\n"):
                assert set(texts) <= hints.lines(text)[line]


def test_line_of_ten_megabytes_is_shown_around_its_hints() -> None:
    """Hints lie over a border of blocks, over the end of the first piece, and at the very end."""
    line = bytearray(b"ab " * 3_500_000)
    half = log_search.MAX_PART_BYTES // 2
    places = [2**20 - 3, 2**20 - 3 + half - 4, 5_000_000, len(line) - 5]
    for place in places:
        line[place : place + 5] = b"Error"
    for data in (bytes(line), b"first\n" + bytes(line) + b"\nError\n"):
        found = quickly(data, ("Error",))
        texts = [item.text for item in found if len(item.text) > 5]
        assert sum(text.count("Error") for text in texts) == len(places)
        assert max(map(len, texts)) == log_search.MAX_PART_BYTES
        assert {item.number for item in found} == ({1} if data[:1] == b"a" else {2, 3})


def test_states_of_an_endless_progress_bar_are_each_looked_at() -> None:
    bars = [b"%d%%|### | %d/99999 [00:30<00:14, Error]" % (n % 100, n) for n in range(60_000)]
    bars[30_000] = b"torch.OutOfMemoryError: x"
    found = quickly(b"\r".join(bars), ("Error",))
    assert [item.text for item in found if "torch" in item.text] == ["torch.OutOfMemoryError: x"]
    assert {item.number for item in found} == {1}
    assert found[0].text == bars[0].decode() and found[-1].text == bars[-1].decode()


def test_log_that_is_not_there_has_no_lines(tmp_path: Path) -> None:
    assert not list(find_lines(tmp_path / "none.log", Hints(HINTS)))


def test_hint_of_digits_alone_is_found() -> None:
    assert quickly(b"a 7\nb 12\n\n12", ("12",)) == [
        FoundLine(2, "b 12", ("12",)),
        FoundLine(4, "12", ("12",)),
    ]
