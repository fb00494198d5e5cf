"""A stream of bytes as blocks of whole lines, with the lines around them. Ignores the lines' meaning."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

from jobspec.log_search import whole_lines

LINES_BEFORE, LINES_AFTER = 2000, 50  # of the neighbouring blocks that a match may read


class View(NamedTuple):
    """The lines of a block with some lines before and after it; the block's own lines begin at `start`."""

    text: bytes
    ends: int
    lines: Sequence[bytes]
    start: int

    def offset(self, at: int) -> int:
        """The index of the line that holds byte `at` of the block. The count starts at the nearer end."""
        if 2 * at < len(self.text):
            return self.start + self.text.count(b"\n", 0, at)
        return self.start + self.ends - self.text.count(b"\n", at)

    def last_lines(self, literals: Sequence[bytes], count: int) -> list[int]:
        """Offsets of the block's last `count` lines with one of the literals, in their order."""
        starts: set[int] = set()
        for literal in literals:
            at, tried = self.text.rfind(literal), 0
            while at >= 0 and tried < count:
                start, tried = self.text.rfind(b"\n", 0, at) + 1, tried + 1
                starts.add(start)
                at = self.text.rfind(literal, 0, start)
        return [self.offset(start) for start in sorted(starts)[-count:]]


@dataclass(frozen=True)
class Block:
    """Whole lines, and the texts around them. `ends` counts line ends; a log's last line may lack one."""

    text: bytes
    ends: int
    before: Sequence[bytes]
    after: Sequence[bytes]

    def view(self) -> View:
        before = b"".join(self.before).rsplit(b"\n", LINES_BEFORE + 1)[:-1][-LINES_BEFORE:]
        inside = self.text.removesuffix(b"\n").split(b"\n")
        after = b"".join(self.after).split(b"\n", LINES_AFTER)[:LINES_AFTER]
        return View(self.text, self.ends, [*before, *inside, *after], len(before))


def blocks(stream: BinaryIO, head: bytes = b"") -> Iterator[Block]:
    """The stream's blocks; `head` was read from it already."""
    before, ahead = _Texts(), _Texts()
    for text in whole_lines(stream, head):
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
