"""The matcher: one pass over any number of logs of any size.

A gigabyte of log is mostly the same few lines with other numbers in them. So each block of lines is reduced
to its distinct shapes, the lines without their digits, and only a shape that was never seen is searched for
the signatures' hints. A pattern is tried only on lines whose shape holds one of its hints.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, NamedTuple

from jobspec.metrics.text import clean
from jobspec.triage.match import Match
from jobspec.triage.signatures import NOTE, Signature, load_signatures
from jobspec.triage.times import find_time

BLOCK_BYTES = 4 * 1024**2
MAX_LINE_CHARS = 4000  # a line is cut here; the longest metric lines of verl have about 6000, no error has
MAX_SHAPES = 200_000  # distinct shapes remembered, about 40 MB; then the memory starts anew
TIME_LOOK_BACK = 200  # lines before a match in which its time is looked for
CONTEXT_BEFORE, CONTEXT_AFTER = 2, 2
SECRET = "secret"  # the kind of signatures whose matches must not be repeated
DIGITS = b"0123456789"


class LogSource(NamedTuple):
    """A log to scan: where it lies, what to call it in a match, and the node that wrote it."""

    path: Path
    name: str = ""
    node: str = ""


def scan_files(sources: Iterable[tuple[Path, str, str] | Path]) -> list[Match]:
    """First match of every signature in every log, in the order of `rank`.

    A source is a path or a `LogSource`. One that cannot be opened is left out: what it would have shown is
    not known.
    """
    index, found = _Index(), list[Match]()
    for item in sources:
        source = LogSource(item) if isinstance(item, Path) else LogSource(*item)
        try:
            with source.path.open("rb") as stream:
                found.extend(_scan(stream, source.name or str(source.path), source.node, index))
        except OSError:
            continue
    return rank(found)


def scan_stream(stream: BinaryIO, name: str = "<stdin>") -> list[Match]:
    """Like `scan_files`, for one open stream of bytes."""
    return rank(_scan(stream, name, "", _Index()))


def scan_lines(lines: Iterable[str], name: str = "<lines>") -> list[Match]:
    """Like `scan_files`, for lines in memory; line ends are optional."""
    data = "\n".join(line.rstrip("\n") for line in lines).encode("utf-8", "replace")
    return scan_stream(BytesIO(data), name)


def rank(matches: Iterable[Match]) -> list[Match]:
    """The likeliest first cause first.

    Specific lines come before effects, effects before notes. Within them time decides where every match has
    one, otherwise the order of reading: a line without a time cannot be placed between two that have one.
    """
    found = list(matches)
    timed = all(match.time is not None for match in found if _class(match) == 0)
    return sorted(found, key=lambda m: (_class(m), (m.time or 0.0) if timed else 0.0, m.order))


def first_cause(matches: Iterable[Match]) -> Match | None:
    """The match that explains a failure, or None: a note never does."""
    return next((match for match in rank(matches) if match.verdict != NOTE), None)


def _class(match: Match) -> int:
    return 2 if match.verdict == NOTE else int(match.generic)


@dataclass
class _Index:
    """Shapes seen so far: `hot` ones with the signatures whose hints they hold, `quiet` ones without any."""

    signatures: tuple[Signature, ...] = field(default_factory=load_signatures)
    hot: dict[bytes, tuple[Signature, ...]] = field(default_factory=dict)
    quiet: set[bytes] = field(default_factory=set)
    matches: int = 0

    def __post_init__(self) -> None:
        self.hints: dict[bytes, list[int]] = {}
        for number, signature in enumerate(self.signatures):
            for hint in signature.hints:
                self.hints.setdefault(hint.encode().translate(None, DIGITS), []).append(number)

    def learn(self, shapes: set[bytes]) -> None:
        """Sort shapes that were never seen into `hot` and `quiet`."""
        if len(self.quiet) + len(self.hot) > MAX_SHAPES:
            self.quiet.clear()
            self.hot.clear()
        fresh = list(shapes - self.quiet - self.hot.keys())
        candidates = self._candidates(fresh)
        self.quiet.update(shape for number, shape in enumerate(fresh) if number not in candidates)
        for number, found in candidates.items():
            self.hot[fresh[number]] = tuple(self.signatures[index] for index in sorted(found))

    def _candidates(self, shapes: Sequence[bytes]) -> dict[int, set[int]]:
        """For each shape with a hint, its number and the numbers of the hint's signatures."""
        text = b"\n".join(shapes)
        starts = list(accumulate((len(shape) + 1 for shape in shapes), initial=0))
        found: dict[int, set[int]] = {}
        for hint, signatures in self.hints.items():
            at = text.find(hint)
            while at >= 0:
                number = bisect_right(starts, at) - 1
                found.setdefault(number, set()).update(signatures)
                at = text.find(hint, starts[number + 1])
        return found


def _scan(stream: BinaryIO, name: str, node: str, index: _Index) -> Iterator[Match]:
    """The first match of each signature in one log."""
    seen: set[str] = set()
    number = 1
    for block in _blocks(stream):
        lines = block.split(b"\n")
        shapes = block.translate(None, DIGITS).split(b"\n")
        distinct = set(shapes)
        index.learn(distinct)
        if not distinct.isdisjoint(index.hot.keys()):
            for offset, shape in enumerate(shapes):
                signatures = index.hot.get(shape)
                if signatures is None:
                    continue
                hit = _match_line(lines[offset], signatures, seen)
                if hit is not None:
                    seen.add(hit[0].id)
                    index.matches += 1
                    yield _make_match(hit, lines, offset, number, name, node, index.matches)
        number += len(lines) - 1


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Blocks that end at a line's end, the last one apart; each has its newline, so lines count on."""
    whole, rest = b"", b""
    while data := stream.read(BLOCK_BYTES):
        cut = data.rfind(b"\n") + 1
        if cut == 0:
            # A progress bar that never ends its line: only its latest state is kept.
            rest = (rest + data)[-BLOCK_BYTES:]
            continue
        if whole:
            yield whole
        whole, rest = rest + data[:cut], data[cut:]
    if whole or rest:
        yield whole + rest


def _match_line(line: bytes, signatures: Sequence[Signature], seen: set[str]) -> tuple[Signature, str] | None:
    """The first signature by precedence that a part of the line shows, unless this log showed it before."""
    for part in line.decode("utf-8", "replace").split("\r"):
        text = clean(part[:MAX_LINE_CHARS]).strip()
        if text.startswith("raise "):
            continue  # a traceback quoting its source: the exception itself follows
        for signature in signatures:
            if signature.pattern.search(text):
                if signature.id in seen:
                    break
                return signature, text
    return None


def _make_match(
    hit: tuple[Signature, str],
    lines: Sequence[bytes],
    offset: int,
    first_line: int,
    name: str,
    node: str,
    order: int,
) -> Match:
    signature, text = hit
    show = partial(_show, signature.pattern if signature.kind == SECRET else None)
    around = lines[max(0, offset - CONTEXT_BEFORE) : offset + CONTEXT_AFTER + 1]
    return Match(
        signature=signature.id,
        kind=signature.kind,
        verdict=signature.verdict,
        file=name,
        line=first_line + offset,
        text=show(text),
        title=signature.title,
        why=signature.why,
        fix=signature.fix,
        source=signature.source,
        generic=signature.generic,
        node=node,
        time=_time(lines, offset),
        order=order,
        context=tuple(show(line.decode("utf-8", "replace")) for line in around if line.strip()),
    )


def _show(secret: re.Pattern[str] | None, line: str) -> str:
    """A line as people may see it: what a secret's signature recognised is not repeated."""
    text = clean(line.rsplit("\r", 1)[-1][:MAX_LINE_CHARS])
    return secret.sub("[secret]", text) if secret is not None else text


def _time(lines: Sequence[bytes], offset: int) -> float | None:
    """The time on the line, or on the nearest line before it that has one."""
    for at in range(offset, max(-1, offset - TIME_LOOK_BACK), -1):
        found = find_time(lines[at][:MAX_LINE_CHARS].decode("utf-8", "replace"))
        if found is not None:
            return found
    return None
