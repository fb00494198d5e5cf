"""A stream of bytes as blocks of whole lines, with the lines around them. Knows nothing of what they say."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

BLOCK_BYTES = 1024**2
DIGITS = b"0123456789"
LINES_BEFORE, LINES_AFTER = 2000, 50  # of the neighbouring blocks, that a match may look at
SAMPLE_BYTES = 32 * 1024
PART_BYTES = 20_000  # of one state of a progress bar, or of a line without any: more is not looked at
MOST_UNENDED = 4  # blocks that a line without an end may take


class View(NamedTuple):
    """The lines of a block between some of those before and after it; its own ones begin at `start`."""

    text: bytes
    ends: int
    lines: Sequence[bytes]
    start: int

    def offset(self, at: int) -> int:
        """Which of the lines holds the byte `at` of the block; counted from the nearer end."""
        if 2 * at < len(self.text):
            return self.start + self.text.count(b"\n", 0, at)
        return self.start + self.ends - self.text.count(b"\n", at)


@dataclass(frozen=True)
class Block:
    """Whole lines, of which `ends` have an end: all but perhaps the log's last; and the texts around them."""

    text: bytes
    ends: int
    before: Sequence[bytes]
    after: Sequence[bytes]

    def view(self) -> View:
        before = b"".join(self.before).rsplit(b"\n", LINES_BEFORE + 1)[:-1][-LINES_BEFORE:]
        own = self.text.removesuffix(b"\n").split(b"\n")
        after = b"".join(self.after).split(b"\n", LINES_AFTER)[:LINES_AFTER]
        return View(self.text, self.ends, [*before, *own, *after], len(before))


def blocks(stream: BinaryIO, head: bytes = b"") -> Iterator[Block]:
    """The stream's blocks; `head` was read from it already."""
    before, ahead = _Texts(), _Texts()
    for text in _whole_lines(stream, head):
        ahead.append(text, text.count(b"\n"))
        while ahead.lines - ahead.ends[0] >= LINES_AFTER:
            yield _next(before, ahead)
    while ahead.texts:
        yield _next(before, ahead)


@dataclass
class _Texts:
    """Texts in a row, with the number of lines that end in each and in all."""

    texts: deque[bytes] = field(default_factory=deque)
    ends: deque[int] = field(default_factory=deque)
    lines: int = 0

    def append(self, text: bytes, ends: int) -> None:
        self.texts.append(text)
        self.ends.append(ends)
        self.lines += ends

    def pop(self) -> tuple[bytes, int]:
        self.lines -= self.ends[0]
        return self.texts.popleft(), self.ends.popleft()


def _next(before: _Texts, ahead: _Texts) -> Block:
    text, ends = ahead.pop()
    block = Block(text, ends, tuple(before.texts), tuple(ahead.texts))
    before.append(text, ends)
    while before.lines - before.ends[0] >= LINES_BEFORE:
        before.pop()
    return block


def _whole_lines(stream: BinaryIO, head: bytes) -> Iterator[bytes]:
    """Texts that end at a line's end, but the last one, which may not."""
    rest = b""
    data = head or take(stream, BLOCK_BYTES)
    while data:
        cut = data.rfind(b"\n") + 1
        if cut:
            yield rest + data[:cut]
            rest = data[cut:]
        else:
            rest = _shortened(rest + data)
        data = take(stream, BLOCK_BYTES)
    if rest:
        yield rest


def _shortened(line: bytes) -> bytes:
    """A line without an end as far as it is looked at: the beginnings of what progress bars overwrote.

    Of those that differ in digits alone the first and the last are kept.
    """
    if len(line) < BLOCK_BYTES:
        return line
    parts = [part[:PART_BYTES] for part in line.split(b"\r")]
    shapes = [plain(part) for part in parts]
    first = {shape: place for place, shape in reversed(list(enumerate(shapes)))}
    last = {shape: place for place, shape in enumerate(shapes)}
    kept = sorted({*first.values(), *last.values()})
    return b"\r".join(parts[place] for place in kept)[-MOST_UNENDED * BLOCK_BYTES :]


def take(stream: BinaryIO, size: int) -> bytes:
    """The next bytes, none where a torn archive or a failing disk gives no more: what came before counts."""
    # `read` of a packed file would lose what it had unpacked before the damage.
    read = getattr(stream, "read1", stream.read)
    pieces, missing = list[bytes](), size
    with suppress(OSError, EOFError, zlib.error):
        while missing > 0 and (piece := read(missing)):
            pieces.append(piece)
            missing -= len(piece)
    return b"".join(pieces)


def distinct(text: bytes) -> bytes:
    """The distinct lines of `text`, or all of it where a sample of them hardly repeats."""
    sample = text[:SAMPLE_BYTES].split(b"\n")
    if 2 * len(set(sample)) > len(sample) > 1:
        return text
    return b"\n".join(set(text.split(b"\n")))


def plain(text: bytes) -> bytes:
    """`text` without its digits: lines of the same shape become equal."""
    return text.translate(None, DIGITS)
