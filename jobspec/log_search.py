"""Finds the lines of logs of any size that hold a hint, one of some texts. Knows nothing of their meaning.

All readers of logs treat the odd parts of logs alike:

- A line feed alone ends a line, and line numbers count line feeds. The last line may have no end.
- Carriage returns separate the states of a progress bar in a line. Each state is searched on its own.
- In a line longer than `BLOCK_BYTES`, only the first and the last of states that differ in digits alone are
  kept, and no more than 16 MiB: the end of the line, or its beginning where it has no states.
- A state longer than `MAX_PART_BYTES` is cut to the text around its hints.

A gigabyte of log is mostly the same few lines with other numbers. So each block of lines is reduced to its
distinct shapes, the lines without their digits, and the shapes are searched. Where lines hardly repeat, the
whole block is searched (see `Hints`).
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

BLOCK_BYTES = 1024**2
MOST_UNENDED = 16  # blocks that a line without an end may take
MAX_PART_BYTES = (
    256 * 1024
)  # a longer part is cut to the text around its hints; a printed configuration has 30 KiB
SAMPLE_BYTES = 32 * 1024
FEW_BYTES = 128 * 1024  # of text: an expression for less would take longer to make than it saves
MANY = 32  # one byte in so many begins a rare pair: another choice may be better
DIGITS = b"0123456789"
# As the second byte of a pair these would be half of a UTF-16 character.
SHAPE = bytes(0x7F if 0xD8 <= byte <= 0xDF else byte for byte in range(256))


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
    return text.translate(SHAPE, DIGITS)


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
    """Texts to look for, hundreds at once.

    Python's `re` tries alternatives one by one at every byte where one may begin, which takes longer than
    everything else. So the text is read as UTF-16: each pair of bytes is one character, and there are half as
    many. A hint covers whole pairs, at an even place other pairs than at an odd one. A class of characters
    finds one pair of each hint for either case, and the hint is compared there. The log itself shows which
    pairs are rare: frequent pairs are left out while every hint keeps one.
    """

    def __init__(self, hints: Iterable[str]) -> None:
        self.hints: dict[bytes, list[str]] = {}
        for hint in dict.fromkeys(hints):
            self.hints.setdefault(plain(hint.encode()), []).append(hint)
        # A shorter hint may cover no whole pair.
        self.short = [hint for hint in self.hints if len(hint) < 3]
        self.searched = self.learn_at = 0  # bytes
        self.expression: re.Pattern[str] | None = None
        self.windows: dict[bytes, list[tuple[bytes, int]]] = {}  # a pair and the byte after it

    def lines(self, text: bytes) -> dict[bytes, set[str]]:
        """The lines of `text`, which is `plain`, that have hints, each with its hints.

        Hints are compared without their digits, so the log's own line may lack some of them.
        """
        self.searched += len(text)
        few = self.searched < FEW_BYTES
        lines: dict[bytes, set[str]] = {}
        start, end, held = 0, -1, set[str]()
        for at, hint in _one_by_one(text, self.hints) if few else self._places(text):
            if not start <= at < end:
                start, end = line_at(text, at)
                held = lines.setdefault(text[start:end], set())
            held.update(self.hints[hint])
        return lines

    def _places(self, text: bytes) -> Iterator[tuple[int, bytes]]:
        """The places of hints."""
        yield from _one_by_one(text, self.short)
        text += b"\n" * (2 - len(text) % 2)
        expression = self.expression or self._learn(text)
        count = 0
        for pair in expression.finditer(text.decode("utf-16-le")):
            count += 1
            at = 2 * pair.start()
            for hint, offset in self.windows.get(text[at : at + 3], ()):
                if offset <= at and text.startswith(hint, at - offset):
                    yield at - offset, hint
        if MANY * count > len(text) and self.searched >= self.learn_at:
            self._learn(text)

    def _learn(self, text: bytes) -> re.Pattern[str]:
        """Choose the pairs that find hints in texts like this one."""
        self.learn_at = 2 * self.searched
        common = Counter(text[: 2 * SAMPLE_BYTES].decode("utf-16-le"))
        self.windows = {}
        # Rare pairs, the pairs after and before them in their hints, and rare pairs without a neighbour.
        rare, after, before, alone = set[str](), set[str](), set[str](), set[str]()
        for hint, at in _choose([hint for hint in self.hints if hint not in self.short], common):
            pair, window = _pair(hint, at), hint[at : at + 3]
            rare.add(pair)
            if at + 4 <= len(hint):
                after.add(_pair(hint, at + 2))
            elif at >= 2:
                before.add(_pair(hint, at - 2))
            else:
                alone.add(pair)
            for key in [window] if len(window) == 3 else [window + bytes([byte]) for byte in range(256)]:
                self.windows.setdefault(key, []).append((hint, at))
        shown = f"(?={_class(after)})|(?<={_class(before)}.)|(?<={_class(alone)})"
        self.expression = re.compile(f"{_class(rare)}(?:{shown})", re.DOTALL)
        return self.expression


def _choose(hints: Iterable[bytes], common: Counter[str]) -> Iterator[tuple[bytes, int]]:
    """Each hint twice: with the offset of a rare pair at an even place, and at an odd place."""
    choices = [
        (hint, {_pair(hint, at): at for at in range(odd, len(hint) - 1, 2)})
        for hint in hints
        for odd in (0, 1)
    ]
    users: dict[str, list[dict[str, int]]] = {}
    for _, pairs in choices:
        for pair in pairs:
            users.setdefault(pair, []).append(pairs)
    for pair, _ in common.most_common():
        if all(len(pairs) > 1 for pairs in users.get(pair, ())):
            for pairs in users.get(pair, ()):
                del pairs[pair]
    for hint, pairs in choices:
        yield hint, pairs[min(pairs, key=lambda pair: common[pair])]


def _pair(text: bytes, at: int) -> str:
    return text[at : at + 2].decode("utf-16-le")


def _class(pairs: set[str]) -> str:
    return f"[{''.join(map(re.escape, sorted(pairs)))}]" if pairs else "(?!)"


def _one_by_one(text: bytes, hints: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """The places of each hint, one a line."""
    for hint in hints:
        at = text.find(hint)
        while at >= 0:
            yield at, hint
            at = text.find(hint, line_at(text, at)[1] + 1)
