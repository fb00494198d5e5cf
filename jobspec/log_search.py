"""Finds the lines of logs of any size that hold a hint, one of some texts. Knows nothing of their meaning.

All readers of logs treat the odd parts of logs alike:

- A line feed alone ends a line, and line numbers count line feeds. The last line may have no end.
- Carriage returns separate the states of a progress bar in a line. Each state is searched on its own.
- In a line longer than `BLOCK_BYTES`, only the first and the last of states that differ in digits alone are
  kept, and no more than 16 MiB: the end of the line, or its beginning where it has no states.
- A state longer than `MAX_PART_BYTES` is cut to the text around its hints.

A gigabyte of log is mostly the same few lines with other numbers. So each block of lines is reduced to its
distinct shapes, the lines without their digits, and the shapes are searched. Where lines hardly repeat, the
whole block is searched.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ahocorasick_rs import BytesAhoCorasick, Implementation

BLOCK_BYTES = 1024**2
MOST_UNENDED = 16  # blocks that a line without an end may take
MAX_PART_BYTES = (
    256 * 1024
)  # a longer part is cut to the text around its hints; a printed configuration has 30 KiB
SAMPLE_BYTES = 32 * 1024
PIECE_BYTES = 64 * 1024
DIGITS = b"0123456789"


class FoundLine(NamedTuple):
    """One state of a line, or a piece of a very long state, and its hints."""

    number: int
    text: str
    hints: tuple[str, ...]


def find_lines(log: Path, hints: Hints) -> Iterator[FoundLine]:
    """All parts of lines with a hint, in order; none when the log cannot be opened."""
    with suppress(OSError), log.open("rb") as stream:
        yield from find_in(stream, hints)


def find_in(stream: BinaryIO, hints: Hints) -> Iterator[FoundLine]:
    """`find_lines` for an open log."""
    number = 1
    for text in whole_lines(stream):
        shapes = plain(text)
        hot = hints.lines(distinct(shapes))
        if hot:
            lines = text.split(b"\n")
            for offset, shape in enumerate(shapes.split(b"\n")):
                if shape in hot:
                    yield from _parts(lines[offset], number + offset, hot[shape])
        number += text.count(b"\n")


def _parts(line: bytes, number: int, hints: Iterable[str]) -> Iterator[FoundLine]:
    texts = {hint: hint.encode() for hint in sorted(hints)}
    for part in line.split(b"\r"):
        for piece in _pieces(part, tuple(texts.values())):
            held = tuple(hint for hint, text in texts.items() if text in piece)
            if held:
                yield FoundLine(number, piece.decode("utf-8", "replace"), held)


def _pieces(part: bytes, texts: tuple[bytes, ...]) -> Iterator[bytes]:
    """The whole part; for a long part the pieces around its hints, each byte once."""
    if len(part) <= MAX_PART_BYTES:
        yield part
        return
    end = 0
    while True:
        # A hint that begins in the piece before and ends in this one is found, too.
        places = [part.find(text, max(0, end + 1 - len(text))) for text in texts]
        at = min((place for place in places if place >= 0), default=-1)
        if at < 0:
            return
        start = max(min(end, at), at - MAX_PART_BYTES // 2)
        end = start + MAX_PART_BYTES
        yield part[start:end]


# -- reading ------------------------------------------------------------------------------------------


def whole_lines(stream: BinaryIO, head: bytes = b"") -> Iterator[bytes]:
    """Texts that end at a line's end; only the last may not. `head` was read from the stream before."""
    rest, limit = b"", BLOCK_BYTES
    data = head or take(stream, BLOCK_BYTES)
    while data:
        cut = data.rfind(b"\n") + 1
        if cut:
            yield rest + data[:cut]
            rest, limit = data[cut:], BLOCK_BYTES
        else:
            rest += data
            if len(rest) >= limit:
                rest = _shortened(rest)
                limit = len(rest) + max(BLOCK_BYTES, len(rest) // 2)
        data = take(stream, BLOCK_BYTES)
    if rest:
        yield rest


def _shortened(line: bytes) -> bytes:
    most = MOST_UNENDED * BLOCK_BYTES
    if b"\r" not in line:
        return line[:most]
    parts = line.split(b"\r")
    shapes = [plain(part) for part in parts]
    first = {shape: place for place, shape in reversed(list(enumerate(shapes)))}
    last = {shape: place for place, shape in enumerate(shapes)}
    return b"\r".join(parts[place] for place in sorted({*first.values(), *last.values()}))[-most:]


def take(stream: BinaryIO, size: int) -> bytes:
    """The next bytes; fewer, or none, where a torn archive or a failing disk gives no more."""
    # `read` of a packed file would lose the bytes unpacked before the damage.
    read = getattr(stream, "read1", stream.read)
    pieces, missing = list[bytes](), size
    with suppress(OSError, EOFError, zlib.error):
        while missing > 0 and (piece := read(missing)):
            pieces.append(piece)
            missing -= len(piece)
    return b"".join(pieces)


def plain(text: bytes) -> bytes:
    """`text` without its digits: lines of the same shape become equal."""
    return text.translate(None, DIGITS)


def distinct(text: bytes) -> bytes:
    """The distinct lines of `text`; the whole text where the lines of a sample hardly repeat."""
    sample = text[:SAMPLE_BYTES].split(b"\n")
    if 2 * len(set(sample)) > len(sample) > 1:
        return text
    return b"\n".join(set(text.split(b"\n")))


def line_at(text: bytes, at: int) -> tuple[int, int]:
    """Where the line around `at` starts and ends."""
    end = text.find(b"\n", at)
    return text.rfind(b"\n", 0, at) + 1, end if end >= 0 else len(text)


# -- searching ----------------------------------------------------------------------------------------


class Hints:
    """Texts to look for, hundreds at once, in one pass (Aho and Corasick's machine)."""

    def __init__(self, hints: Iterable[str]) -> None:
        self.hints: dict[bytes, list[str]] = {}
        for hint in dict.fromkeys(hints):
            self.hints.setdefault(plain(hint.encode()), []).append(hint)
        self.everywhere = self.hints.get(b"", [])  # hints of digits alone
        self.texts = [text for text in self.hints if text]
        self.named = [self.hints[text] for text in self.texts]
        self.overlap = max(map(len, self.texts), default=1) - 1
        self.machine = BytesAhoCorasick(self.texts, implementation=Implementation.DFA)

    def lines(self, text: bytes) -> dict[bytes, set[str]]:
        """The lines of `text`, which is `plain`, that have hints, each with its hints.

        Hints are compared without their digits, so the log's own line may lack some of them.
        """
        every = text.split(b"\n") if self.everywhere else ()
        lines = {line: set(self.everywhere) for line in every}
        start, end, held = 0, -1, set[str]()
        named, find, rfind = self.named, text.find, text.rfind  # for the innermost loop
        # The machine lists all places at once, so it gets small pieces: some places come twice.
        for piece in range(0, len(text), PIECE_BYTES):
            part = text[piece : piece + PIECE_BYTES + self.overlap]
            for number, begin, _ in self.machine.find_matches_as_indexes(part, overlapping=True):
                at = piece + begin
                if not start <= at < end:
                    start, end = rfind(b"\n", 0, at) + 1, find(b"\n", at)
                    end = end if end >= 0 else len(text)
                    held = lines.setdefault(text[start:end], set())
                held.update(named[number])
        return lines
