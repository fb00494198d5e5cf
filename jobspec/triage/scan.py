"""The matcher: one pass over any number of logs of any size.

Each block of lines is searched for the signatures' hints (`jobspec.log_search`). A pattern is tried only on
lines whose shape, the line without its digits, holds one of its hints.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from jobspec.finding import Finding
from jobspec.log_search import distinct, plain, take
from jobspec.log_text import clean
from jobspec.triage import landmarks, own_words
from jobspec.triage.attempts import Attempt, Attempts
from jobspec.triage.blocks import LINES_AFTER, LINES_BEFORE, Block, View, blocks
from jobspec.triage.conclusion import conclude
from jobspec.triage.course import Course
from jobspec.triage.good_end import later_step
from jobspec.triage.gunzip import Budget, left_out
from jobspec.triage.hint_index import HintIndex, whole_index
from jobspec.triage.jobs import Part
from jobspec.triage.landmarks import Kind, Landmark, present
from jobspec.triage.line_match import (
    MAX_LINE_CHARS,
    MAX_TRIES,
    Hit,
    answered_later,
    is_expected_end,
    kept_offsets,
    match_line,
    match_lines,
)
from jobspec.triage.match import Match
from jobspec.triage.nodes import MOST_LINES, speaker
from jobspec.triage.own_advice import LINES_BELOW, whole
from jobspec.triage.ranking import first_cause, rank
from jobspec.triage.shell_trace import is_forgiven, outlived_by
from jobspec.triage.shown_above import CONCERNED, HEAD_LINES, LINES_ABOVE, Row, facts_above, rows_of_tools
from jobspec.triage.signatures import NOTE, Signature, masked
from jobspec.triage.sources import LogSource, end_by_date, latest_end, unpacked
from jobspec.triage.times import LineTimes
from jobspec.triage.traceback import (
    Traceback,
    goes_on,
    lines_below,
    same_voice_below,
    thread_below,
    traceback_of,
)

__all__ = ["LogSource", "first_cause", "rank", "scan_files", "scan_lines", "scan_stream"]

HEAD_BYTES = 1024**2  # at the start of a log, searched for a date
TREND = 3  # last values of a metric in a log, by which it is judged
CONTEXT_BEFORE, CONTEXT_AFTER = 4, 2
_Marks = tuple[tuple[str, tuple[Kind, ...]], ...]
_FIRST_MARKS: _Marks = landmarks.FIRST
_LAST_MARKS: _Marks = (
    ("stated_end", landmarks.STATED_END),
    ("wrote", landmarks.WROTE),
    ("finite", landmarks.FINITE),
)
_END_MARKS: _Marks = (("done", landmarks.DONE), ("closed", landmarks.FINISHED))


def scan_files(
    sources: Iterable[LogSource | tuple[Path, str, str] | Path],
    index: HintIndex | None = None,
    problems: list[Finding] | None = None,
) -> list[Match]:
    """First match of every signature in every log, in the order of `rank`.

    A source is a path or a `LogSource`; gzip is read as well, in bounds: `problems` takes a finding for each
    log that was not read in full. A log that cannot be opened gives no match. One `index` may serve any
    number of calls.
    """
    index, logs, count = index or whole_index(), list[list[Part]](), 0
    named = [LogSource(item) if isinstance(item, Path) else LogSource(*item) for item in sources]
    dated = latest_end(named) if len(named) > 1 else None
    budget = Budget()
    for source in named:
        log = _Log(source.name or str(source.path), source.node, index, source.ahead_s)
        with suppress(OSError), source.path.open("rb") as stream:
            log.latest = min(source.path.stat().st_mtime, dated or math.inf)
            text = unpacked(stream, budget)
            log.read(text)
            if problems is not None:
                problems += left_out(text, log.name)
        logs.append(log.parts(count))
        count += sum(len(part.matches) for part in logs[-1])
    return conclude(logs)


def scan_stream(
    stream: BinaryIO, name: str = "<stdin>", problems: list[Finding] | None = None
) -> list[Match]:
    """Like `scan_files`, for one open stream of bytes."""
    log = _Log(name, "", whole_index())
    text = unpacked(stream)
    log.read(text)
    if problems is not None:
        problems += left_out(text, name)
    return conclude([log.parts()])


def scan_lines(lines: Iterable[str], name: str = "<lines>") -> list[Match]:
    """Like `scan_files`, for lines in memory; line ends are optional."""
    data = "\n".join(line.rstrip("\n") for line in lines).encode("utf-8", "replace")
    return scan_stream(BytesIO(data), name)


@dataclass
class _Log:
    """A log that is being read. `number` is that of the line to be read next."""

    name: str
    node: str
    index: HintIndex
    ahead_s: float = 0.0
    latest: float = field(default_factory=time.time)
    attempts: list[Attempt] = field(default_factory=lambda: [Attempt()])
    starts: Attempts = field(default_factory=Attempts)
    number: int = 1
    times: LineTimes = field(default_factory=lambda: LineTimes(()))
    head: Sequence[bytes] = ()
    shown: list[Row] | None = None

    @property
    def now(self) -> Attempt:
        return self.attempts[-1]

    def read(self, stream: BinaryIO) -> None:
        head = take(stream, HEAD_BYTES)
        self._date(head)
        block: Block | None = None
        for block in blocks(stream, head):
            self._block(block)
        if block is not None:
            view = block.view()
            self._end(view.lines[: view.start + len(view.text.splitlines())], self.number)

    def parts(self, order: int = 0) -> list[Part]:
        """The attempts, their matches in the order of their lines, counted from `order`."""
        parts = list[Part]()
        for attempt in self.attempts:
            matches = [replace(match, order=place) for place, match in enumerate(attempt.matches(), order)]
            parts.append(Part(self.name, attempt, matches))
            order += len(matches)
        return parts

    def _date(self, head: bytes) -> None:
        """Take the year from the first date in the log: a copied file is younger than its lines."""
        self.latest = min([self.latest, *end_by_date(head)])
        self.head = head.split(b"\n", HEAD_LINES)[:HEAD_LINES]
        self.now.begun = self._time(head.split(b"\n", LINES_AFTER)[:LINES_AFTER], 0)

    def _block(self, block: Block) -> None:
        shapes = plain(block.text)
        # A hint that no shape holds is in no line: most blocks end here.
        lines = self.index.hints.lines(distinct(shapes))
        if lines:
            hints, hot = frozenset[str]().union(*lines.values()), self.index.hot(lines)
            whole = block.view()
            for view, part in self._attempts(whole, shapes, hints):
                step = self._landmarks(view, hints)
                self._lines(view, part, hot, step)
                self._trends(view, hints)
                self.now.work.add(view, self.number, hints, self.latest)
                self.now.addresses.add(view, self.number, hints)
                self.number += view.ends
        else:
            self.number += block.ends

    def _attempts(self, view: View, shapes: bytes, hints: Set[str]) -> Iterator[tuple[View, bytes]]:
        """The parts of a block that belong to one attempt each, with their shapes."""
        at = offset = 0
        ends = [*self.starts.starts(view.text, shapes, hints), len(view.text)]
        lines = shapes.split(b"\n") if len(ends) > 1 else []
        for end in ends:
            text = view.text[at:end]
            part = View(text, text.count(b"\n"), view.lines, view.start + offset)
            yield part, b"\n".join(lines[offset : offset + part.ends]) if lines else shapes
            at, offset = end, offset + part.ends
            if at < len(view.text):
                self._next_attempt(view, view.start + offset)

    def _next_attempt(self, view: View, offset: int) -> None:
        if self.now.is_empty():
            return
        self._end(view.lines[:offset], self.number)
        start = Landmark(self.number, self._time(view.lines, offset))
        self.attempts.append(Attempt(start, Course(managed=self.now.course.managed)))

    def _end(self, lines: Sequence[bytes], number: int) -> None:
        self.now.work.end(lines, number, self.latest)

    def _lines(self, view: View, shapes: bytes, hot: Mapping[bytes, Sequence[Signature]], step: int) -> None:
        """Matches of a block; `step` is the offset of its last training step or end, -1 without one."""
        hits: dict[int, Hit] = {}
        for shape, offsets in _places(shapes, hot, view.start).items():
            cut = bisect_right(offsets, step)
            last = offsets[:-MAX_TRIES:-1] if len(offsets) > 1 else []
            for part in (offsets[:cut], offsets[cut:], last):
                match_lines(view.lines, part, hot[shape], hits)
            shown = {hits[offset].signature.id for offset in offsets if offset in hits} if hits else ()
            for signature in shown:
                names = {speaker(view.lines[offset]) for offset in offsets[:MOST_LINES]}
                self.now.speakers.setdefault(signature, set()).update(names - {""})
        stepped = step < 0
        for offset in kept_offsets(hits, step):
            if not stepped and offset > step:
                self.now.since.clear()
                stepped = True
            self.now.keep(self._match(hits[offset], view, offset + hits[offset].below))
        if not stepped:
            self.now.since.clear()

    def _trends(self, view: View, hints: Set[str]) -> None:
        """Keep the last values of the metrics that signatures judge."""
        for signature in self.index.trends:
            values = self.now.trends.setdefault(signature.id, deque(maxlen=TREND))
            held = [hint.encode() for hint in signature.hints if hint in hints]
            for offset in view.last_lines(held, TREND):
                hit = match_line(view.lines, offset, (signature,))
                values.append(self._match(hit, view, offset) if hit is not None else None)

    def _landmarks(self, view: View, hints: Set[str]) -> int:
        """Note how far the run has come in this block; returns the offset of the last line that shows
        it at work, that of a step or of its end, or -1."""
        course = self.now.course
        if not course.managed:
            course = replace(course, managed=bool(present(landmarks.MANAGED, hints)))
        stages, last = landmarks.stages(view.text, hints, done=course.finished or course.done is not None), -1
        for start, end in zip((0, *stages), (*stages, len(view.text)), strict=True):
            if start in stages:
                course = Course(
                    managed=course.managed,
                    last_step=course.last_step,
                    finite=course.finite,
                    trained=course.done or course.trained,
                    wrote=course.wrote,
                    good_before=course.stated_end or course.good_before,
                )
            course, step = self._noted(view, start, end, course, hints)
            last = step if step >= 0 else last
        self.now.course = course
        offset = -1 if last < 0 else view.offset(last)
        end = course.closed.line - self.number + view.start if course.closed is not None else -1
        return max(offset, end if end >= view.start else -1)

    def _noted(self, view: View, start: int, end: int, course: Course, hints: Set[str]) -> tuple[Course, int]:
        """The course with what a part of the block shows, and where the last step's line starts."""
        text = view.text[start:end]

        def mark(at: int, after: int = LINES_AFTER) -> Landmark | None:
            return self._landmark(view, at + start if at >= 0 else -1, after)

        marks: dict[str, Any] = {}
        for name, kinds in _FIRST_MARKS:
            held = present(kinds, hints)
            if held and getattr(course, name) is None:
                marks[name] = mark(landmarks.find_first(text, held))
        for name, kinds in _LAST_MARKS:
            held = present(kinds, hints)
            if held:
                marks[name] = mark(landmarks.find_last(text, held)) or getattr(course, name)
        steps = present(landmarks.STEP, hints)
        step = landmarks.find_last(text, steps)
        if step >= 0:
            first = course.first_step or mark(landmarks.find_first(text, steps))
            course = replace(course, first_step=first, last_step=mark(step, 0), done=None, closed=None)
            course = replace(course, trained=course.last_step if landmarks.is_last_step(text, step) else None)
        for name, kinds in _END_MARKS:
            held = present(kinds, hints)
            if held and getattr(course, name) is None:
                at = landmarks.find_first(text[max(step, 0) :], held)
                marks[name] = mark(at + max(step, 0) if at >= 0 else -1)
        return replace(course, **marks), step + start if step >= 0 else -1

    def _landmark(self, view: View, at: int, after: int) -> Landmark | None:
        """The place with its time; the last step was no later than it: a hang may follow before the next."""
        if at < 0:
            return None
        place = view.offset(at)
        return Landmark(self._number(view, place), self._time(view.lines, place, after))

    def _number(self, view: View, offset: int) -> int:
        return self.number + offset - view.start

    def _match(self, hit: Hit, view: View, offset: int) -> Match:
        signature = hit.signature
        above, below = traceback_of(view.lines, offset), lines_below(view.lines, offset)
        words = own_words.with_message(hit.text, below)
        message = whole(hit.text, same_voice_below(view.lines, offset, LINES_BELOW))
        place, told = own_words.place(words, above), own_words.told(signature, words, above, message)
        at_work = own_words.frame_at_work(above) if told.boundary == "construction" else ""
        around = view.lines[max(0, offset - CONTEXT_BEFORE) : offset + CONTEXT_AFTER + 1]
        later = outlived_by(view.lines, offset) if signature.generic else ""
        done = self.now.course.trained or self.now.course.done
        since = min(self._number(view, offset) - done.line, offset) if done is not None else 0
        why = signature.why
        if at_work:
            why = f"{masked(told.title)}; its traceback comes through {at_work}: the model was built"
        elif later:
            why = masked(f"{told.title}; the script went on without it: `{later}` ran after it")
        return Match(
            signature=signature.id,
            kind=told.kind,
            verdict=NOTE if later else told.verdict,
            file=self.name,
            line=self._number(view, offset),
            text=_show(own_words.with_statement(words, above)),
            title=masked(told.title),
            why=why,
            fix=masked(own_words.advice(told.fix, words, above)),
            source=signature.source,
            generic=signature.generic,
            wrapper=signature.wrapper or own_words.is_handled(signature, words, above, below),
            survived=bool(later)
            or is_forgiven(view.lines, offset)
            or answered_later(view.lines, offset)
            or is_expected_end(view.lines, offset),
            place=masked(place),
            doing=masked(later_step(above, view.lines[offset - since : offset])) if since > 0 else "",
            main=above.in_main,
            caught=above.logged and goes_on(view.lines, offset),
            boundary="" if at_work else told.boundary,
            node=self.node,
            time=self._time(view.lines, offset),
            until=self._until(view.lines, offset),
            context=tuple(_show(line.decode("utf-8", "replace")) for line in around if line.strip()),
            facts=() if told.verdict == NOTE else self._facts(told.kind, words, above, view, offset),
        )

    def _facts(self, kind: str, words: str, above: Traceback, view: View, offset: int) -> tuple[str, ...]:
        """Where an exception without a message was raised, what tools say above that concerns it, and where a
        process was that a signal ended."""
        frame = f"the frame {above.place} is line {self._number(view, above.offset)} of the log"
        shown = self._rows(view, offset) if kind in CONCERNED else []
        rows = facts_above(kind, words, above.frames, shown, self.name)
        below, stack = thread_below(view.lines, offset)
        thread = (
            f"the stack below `Current thread` has {stack} ({self.name}:{self._number(view, offset + below)})"
        )
        facts = (*([frame] if own_words.is_silent(words, above) else ()), *rows, *([thread] if stack else ()))
        return tuple(map(masked, facts))

    def _rows(self, view: View, offset: int) -> list[Row]:
        """What tools print at the log's start and shortly before the line."""
        number, start = self._number(view, offset), max(0, offset - LINES_ABOVE)
        self.shown = rows_of_tools(self.head, 1) if self.shown is None else self.shown
        near = rows_of_tools(view.lines[start:offset], self._number(view, start))
        rows = {row.number: row for row in (*self.shown, *near) if row.number < number}
        return [rows[number] for number in sorted(rows)]

    def _until(self, lines: Sequence[bytes], offset: int) -> float | None:
        """The time of the next line that tells one, if the line tells none."""
        after = self._times(lines).below(offset, LINES_AFTER)
        return None if after is None else after - self.ahead_s

    def _time(self, lines: Sequence[bytes], offset: int, after: int = LINES_AFTER) -> float | None:
        """The time that the line or one around it tells, by the clock of no node."""
        seconds = self._times(lines).near(offset, LINES_BEFORE, after)
        return None if seconds is None else seconds - self.ahead_s

    def _times(self, lines: Sequence[bytes]) -> LineTimes:
        if self.times.lines is not lines:
            self.times = LineTimes(lines, self.latest)
        return self.times


def _places(shapes: bytes, hot: Container[bytes], start: int) -> dict[bytes, list[int]]:
    """The offsets of the lines of each hot shape, counted from `start`."""
    places: dict[bytes, list[int]] = {}
    for offset, shape in enumerate(shapes.split(b"\n") if hot else (), start):
        if shape in hot:
            places.setdefault(shape, []).append(offset)
    return places


def _show(line: str) -> str:
    """A line for people, without secrets."""
    return masked(clean(line.rsplit("\r", 1)[-1][:MAX_LINE_CHARS]))
