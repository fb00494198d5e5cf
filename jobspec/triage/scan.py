"""The matcher: one pass over any number of logs of any size.

A gigabyte of log is mostly the same few lines with other numbers in them. So each block of lines is reduced
to its distinct shapes, the lines without their digits, and only a shape that was never seen is searched for
the signatures' hints. A pattern is tried only on lines whose shape holds one of its hints.
"""

from __future__ import annotations

import gzip
import re
import time
import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from jobspec.metrics.text import bare, clean
from jobspec.triage import landmarks
from jobspec.triage.index import DIGITS, ShapeIndex
from jobspec.triage.landmarks import Landmark
from jobspec.triage.match import Match
from jobspec.triage.settle import Course, first_cause, rank, settle
from jobspec.triage.signatures import Signature
from jobspec.triage.times import ISO_TIME, find_time
from jobspec.triage.traceback import Traceback, traceback_above

__all__ = ["LogSource", "first_cause", "rank", "scan_files", "scan_lines", "scan_stream"]

BLOCK_BYTES = 4 * 1024**2
MAX_LINE_CHARS = 4000  # a line is cut here; the longest metric lines of verl have about 6000, no error has
TIME_LOOK_BACK = 2000  # lines before a match in which its time is looked for
TIME_LOOK_AHEAD = 50  # and after it, where a log starts with the failure
MAX_TRIES = 50  # lines of one shape that are tried in a block: only digits differ
TREND = 3  # values of a metric, the last of a log, by which it is judged
CONTEXT_BEFORE, CONTEXT_AFTER = 4, 2
SECRET = "secret"  # the kind of signatures whose matches must not be repeated
GZIP_MAGIC = b"\x1f\x8b"
_FIRST_MARKS = (
    ("construction", landmarks.CONSTRUCTION),
    ("built", landmarks.BUILT),
    ("done", landmarks.DONE),
)
# Warnings and what Python's own shutdown prints hold the words of failures and are none.
NOISE = re.compile(
    r"(?:User|Future|Deprecation|Runtime|Resource)Warning\b|resource_tracker|destroy_process_group"
    r"|^\s*Exception ignored (?:in|on|while)\b|^\s*raise |^\s*Error (?:shutting down|stopping) "
    # A script that traces itself shows its text: what it would say, or explain, is not said. NeMo-RL's
    # ray.sub prints the whole of its node scripts that way into the log of every job.
    r"|^\s*# |\b(?:echo|printf) [\"']"
    r"|Subprocesses exit with SIGTERM"  # what every `ray start --block` announces
)


class LogSource(NamedTuple):
    """A log to scan: where it lies, what to call it in a match, the node that wrote it, and by how many
    seconds that node's clock is ahead."""

    path: Path
    name: str = ""
    node: str = ""
    ahead_s: float = 0.0


def scan_files(sources: Iterable[LogSource | tuple[Path, str, str] | Path]) -> list[Match]:
    """First match of every signature in every log, in the order of `rank`.

    A source is a path or a `LogSource`; gzip is read as well. One that cannot be opened is left out: what it
    would have shown is not known.
    """
    index, found, courses = ShapeIndex(), list[Match](), dict[str, Course]()
    for item in sources:
        source = LogSource(item) if isinstance(item, Path) else LogSource(*item)
        log = _Log(source.name or str(source.path), source.node, index, source.ahead_s)
        with suppress(OSError), source.path.open("rb") as stream:
            log.latest = source.path.stat().st_mtime
            log.read(_unpacked(stream))
        found.extend(log.matches())
        courses[log.name] = log.course
    return settle(found, courses)


def _unpacked(stream: BinaryIO) -> BinaryIO:
    """Looks at the first bytes without taking them: a pipe gives them once."""
    if not isinstance(stream, BufferedReader) or stream.peek(2)[:2] != GZIP_MAGIC:
        return stream
    return cast(BinaryIO, gzip.GzipFile(fileobj=stream))


def scan_stream(stream: BinaryIO, name: str = "<stdin>") -> list[Match]:
    """Like `scan_files`, for one open stream of bytes."""
    log = _Log(name, "", ShapeIndex())
    log.read(_unpacked(stream))
    return settle(log.matches(), {name: log.course})


def scan_lines(lines: Iterable[str], name: str = "<lines>") -> list[Match]:
    """Like `scan_files`, for lines in memory; line ends are optional."""
    data = "\n".join(line.rstrip("\n") for line in lines).encode("utf-8", "replace")
    return scan_stream(BytesIO(data), name)


@dataclass
class _Log:
    """One log as it is read: each signature's first match, and its first one after the last training step."""

    name: str
    node: str
    index: ShapeIndex
    ahead_s: float = 0.0
    latest: float = field(default_factory=time.time)
    course: Course = field(default_factory=Course)
    first: dict[str, Match] = field(default_factory=dict)
    since: dict[str, Match] = field(default_factory=dict)
    last: dict[str, Match] = field(default_factory=dict)
    trends: dict[str, deque[Match | None]] = field(default_factory=dict)
    number: int = 1

    def read(self, stream: BinaryIO) -> None:
        for number, block in enumerate(_blocks(stream)):
            if number == 0:
                self._date(block)
            self._block(block)

    def matches(self) -> list[Match]:
        found = [*self.first.values(), *self.since.values(), *self.last.values()]
        for values in self.trends.values():
            bad = [value for value in values if value is not None]
            found += bad[:1] if 2 * len(bad) > len(values) else []
        return sorted(found, key=lambda match: match.line)

    def _date(self, block: bytes) -> None:
        """A log that was copied is younger than its lines: its own first date says their year."""
        found = ISO_TIME.search(block[:1_000_000].decode("utf-8", "replace"))
        own = find_time(found[0]) if found is not None else None
        if own is not None:
            self.latest = min(self.latest, own + 300 * 86400)

    def _block(self, block: bytes) -> None:
        lines = block.split(b"\n")
        shapes = block.translate(None, DIGITS).split(b"\n")
        distinct = set(shapes)
        self.index.learn(distinct)
        # What no shape holds no line holds: most searches end here, in a fraction of the block.
        kinds = b"\n".join(distinct)
        step = self._landmarks(block, lines, kinds)
        if not distinct.isdisjoint(self.index.hot.keys()):
            self._lines(lines, shapes, step)
        elif step >= 0:
            self.since.clear()
        self._trends(block, lines, kinds)
        self.number += len(lines) - 1

    def _lines(self, lines: Sequence[bytes], shapes: Sequence[bytes], step: int) -> None:
        """Matches of a block; `step` is the offset of its last training step, -1 without one."""
        hot = self.index.hot
        places: dict[bytes, list[int]] = {}
        for offset, shape in enumerate(shapes):
            if shape in hot:
                places.setdefault(shape, []).append(offset)
        found: dict[int, tuple[Signature, str]] = {}
        for shape, offsets in places.items():
            cut = bisect_right(offsets, step)
            for part in (offsets[:cut], offsets[cut:], offsets[:-MAX_TRIES:-1]):
                self._try(lines, part, hot[shape], found)
        stepped = step < 0
        for offset in sorted(found):
            if not stepped and offset > step:
                self.since.clear()
                stepped = True
            self._keep(*found[offset], lines, offset)
        if not stepped:
            self.since.clear()

    def _try(
        self,
        lines: Sequence[bytes],
        offsets: Sequence[int],
        signatures: Sequence[Signature],
        found: dict[int, tuple[Signature, str]],
    ) -> None:
        """The first match among lines of one shape. Only digits tell them apart, so few are tried."""
        for offset in offsets[:MAX_TRIES]:
            hit = found.get(offset) or _match_line(lines, offset, signatures)
            if hit is not None:
                found[offset] = hit
                break

    def _keep(self, signature: Signature, text: str, lines: Sequence[bytes], offset: int) -> None:
        for kept in (self.first, self.since):
            if signature.id not in kept:
                kept[signature.id] = self._match(signature, text, lines, offset)
                return
        self.last[signature.id] = self._match(signature, text, lines, offset)

    def _trends(self, block: bytes, lines: Sequence[bytes], kinds: bytes) -> None:
        """The last values of the metrics that signatures judge."""
        for signature in self.index.trends:
            values = self.trends.setdefault(signature.id, deque(maxlen=TREND))
            hints = [hint for hint in signature.hints if self.index.holds(kinds, hint.encode())]
            for offset in _last_lines(block, hints, TREND, len(lines) - 1):
                hit = _match_line(lines, offset, (signature,))
                values.append(self._match(signature, hit[1], lines, offset) if hit is not None else None)

    def _landmarks(self, block: bytes, lines: Sequence[bytes], kinds: bytes) -> int:
        """Note how far the run has come by the end of this block; the offset of the last step's line."""
        course = self.course
        if not course.managed:
            managed = any(self.index.holds(kinds, kind.literal) for kind in landmarks.MANAGED)
            course = replace(course, managed=managed)
        marks: dict[str, Any] = {}
        for name, wanted in _FIRST_MARKS:
            present = tuple(kind for kind in wanted if self.index.holds(kinds, kind.literal))
            if present and getattr(course, name) is None:
                marks[name] = self._landmark(block, lines, landmarks.find_first(block, present))
        course = replace(course, **marks)
        steps = tuple(kind for kind in landmarks.STEP if self.index.holds(kinds, kind.literal))
        step = self._landmark(block, lines, landmarks.find_last(block, steps))
        if step is not None:
            course = replace(
                course, first_step=course.first_step or self._first_step(block, lines), last_step=step
            )
        self.course = course
        return -1 if step is None else step.line - self.number

    def _first_step(self, block: bytes, lines: Sequence[bytes]) -> Landmark | None:
        return self._landmark(block, lines, landmarks.find_first(block, landmarks.STEP))

    def _landmark(self, block: bytes, lines: Sequence[bytes], at: int) -> Landmark | None:
        if at < 0:
            return None
        offset = len(lines) - 1 - block.count(b"\n", at)
        return Landmark(self.number + offset, self._time(lines, offset))

    def _match(self, signature: Signature, text: str, lines: Sequence[bytes], offset: int) -> Match:
        self.index.matches += 1
        show = partial(_show, signature.pattern if signature.kind == SECRET else None)
        around = lines[max(0, offset - CONTEXT_BEFORE) : offset + CONTEXT_AFTER + 1]
        return Match(
            signature=signature.id,
            kind=signature.kind,
            verdict=signature.verdict,
            file=self.name,
            line=self.number + offset,
            text=show(text),
            title=signature.title,
            why=signature.why,
            fix=signature.fix,
            source=signature.source,
            generic=signature.generic,
            wrapper=signature.wrapper,
            boundary=signature.boundary,
            node=self.node,
            time=self._time(lines, offset),
            order=self.index.matches,
            context=tuple(show(line.decode("utf-8", "replace")) for line in around if line.strip()),
        )

    def _time(self, lines: Sequence[bytes], offset: int) -> float | None:
        """The time on the line, or on the nearest line before it that has one, else after it."""
        before = range(offset, max(-1, offset - TIME_LOOK_BACK), -1)
        after = range(offset + 1, min(len(lines), offset + TIME_LOOK_AHEAD))
        for at in (*before, *after):
            found = find_time(lines[at][:MAX_LINE_CHARS].decode("utf-8", "replace"), self.latest)
            if found is not None:
                return found - self.ahead_s
        return None


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Blocks that end at a line's end, the last one apart; each has its newline, so lines count on."""
    whole, rest = b"", b""
    while data := _read(stream):
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


def _read(stream: BinaryIO) -> bytes:
    """The next bytes, none where a torn archive or a failing disk gives no more: what came before counts."""
    # `read` of a packed file would lose what it had unpacked before the damage.
    take = getattr(stream, "read1", stream.read)
    pieces, missing = list[bytes](), BLOCK_BYTES
    with suppress(OSError, EOFError, zlib.error):
        while missing > 0 and (piece := take(missing)):
            pieces.append(piece)
            missing -= len(piece)
    return b"".join(pieces)


def _last_lines(block: bytes, literals: Sequence[str], count: int, last: int) -> list[int]:
    """Offsets of the last `count` lines with one of the literals, in their order; `last` is the block's."""
    ends: set[int] = set()
    for literal in literals:
        at, found = block.rfind(literal.encode()), 0
        while at >= 0 and found < count:
            start, found = block.rfind(b"\n", 0, at) + 1, found + 1
            ends.add(start)
            at = block.rfind(literal.encode(), 0, start)
    return [last - block.count(b"\n", start) for start in sorted(ends)[-count:]]


def _match_line(
    lines: Sequence[bytes], offset: int, signatures: Sequence[Signature]
) -> tuple[Signature, str] | None:
    """The first signature by precedence that a part of the line shows, and that part."""
    for part in lines[offset].decode("utf-8", "replace").split("\r"):
        text = bare(part[:MAX_LINE_CHARS]).strip()
        above: Traceback | None = None
        for signature in signatures:
            if not signature.pattern.search(text):
                continue
            if NOISE.search(text):
                break
            if signature.frames is None and not signature.generic:
                return signature, text
            above = above or traceback_above(lines, offset)
            if above.ignored:
                break
            if signature.frames is None or any(signature.frames.search(frame) for frame in above.frames):
                return signature, text
    return None


def _show(secret: re.Pattern[str] | None, line: str) -> str:
    """A line as people may see it: what a secret's signature recognised is not repeated."""
    text = clean(line.rsplit("\r", 1)[-1][:MAX_LINE_CHARS])
    return secret.sub("[secret]", text) if secret is not None else text
