"""Signs of work in a log: steps, progress bars that move, engines that answer, phases that begin.

Few lines have a time of their own. A progress bar has a clock, which starts at the time above its first
state; any other sign is as old as the time above it. Of many signs in a block some are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

from jobspec.log_search import line_at
from jobspec.log_text import clean
from jobspec.triage.blocks import View
from jobspec.triage.landmarks import STEP, Kind, kind, present, shows
from jobspec.triage.times import CLOCK, clock_of, find_time

FULL_BLOCKS = 8  # blocks of a log in which most signs are looked at
MOST = 64  # signs of a kind that are looked at in such a block; in a later one the last alone
MOST_AFTER = 1000  # signs after the last that was looked at
TAIL_LINES = 2000  # at a log's end
TEXT_CHARS = 400
ABOVE_BYTES = 64 * 1024  # above a sign, searched for a time
DAY_S = 86400.0
LOOSE = 3  # signs in a row without a known time, at least

BAR = kind("%|", r"%\|[^|]*\| *\d")
PHASES = (
    kind("▶ "),  # NeMo-RL
    kind("= Step ", r"^=+ Step \d+/\d+ =+$"),
    kind("Will skip the first "),  # transformers, of a resumed run
    kind("Started: '"),  # SkyRL
    kind("Finished: '"),
    kind("Saving checkpoint"),
    kind("Model checkpoint of size "),  # torchtune
    kind("Saving model checkpoint to "),  # transformers
    kind("saving checkpoint at iteration"),  # Megatron-LM, as the next
    kind("successfully saved checkpoint"),
    kind("Starting validation"),
    kind("Timer ", r"\bTimer \w+ (?:start|end)\b"),  # slime
    kind("Evaluating ", r"\bEvaluating \S+: [1-9]\d*/\d+ "),  # prime-rl
)
ENGINES = (
    kind("throughput", r"throughput[^:]{0,12}: *(?:[1-9]|0\.0*[1-9])"),
    kind("POST /", r'"POST /(?:v1/(?:chat/)?completions|generate)\S* HTTP/\S+" 200'),
    kind("The server is fired up and ready to roll"),  # SGLang
    kind("Application startup complete."),  # vLLM
)
SIGNS = (*STEP, BAR, *PHASES, *ENGINES)
_BAR = re.compile(
    r"^(?P<name>.*?) *\d+%\|[^|]*\| *(?P<done>\d+(?:\.\d*)?)\w?/\S+ "
    r"\[(?:(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+)<"
)
# Slurm's clock may show another zone than the program's. Idle lines only say that a program lives, or ends.
_SLURM = re.compile(r"^(?:slurmstepd|srun|sbatch|scontrol)\b|\*\*\* (?:JOB|STEP) ")
_IDLE = re.compile(
    r"(?i)\bwait|poll|heartbeat|health|\bstill\b|\bidle\b|pending|retry|/metrics|metric_exporter|SIGTERM|signal"
    r"|shut(?:ting)? ?down|terminat|throughput|\bGC request\b"
)

_DIGITS = re.compile(r"[\d.]+|\s+")
_PASSED = re.compile(r"(?<![\w.:-])(\d+(?:\.\d+)?) ?(?:s|secs?|seconds)\b")
_WAITS = re.compile(r"(?i)\bwait(?:s|ing)?\b(?!: *\d)|\bretry(?:ing)?\b")
# Lines without a time that show no more than that a program lives, or ends, or stand below another one.
_MUTE = re.compile(
    r"(?i)^\s|heartbeat|health|/metrics|SIGTERM|signal|shut(?:ting)? ?down|terminat|throughput"
)
_PARTING = re.compile(r"(?i)SIGTERM|signal|shut(?:ting)? ?down|terminat")


@dataclass(frozen=True)
class Sign:
    """A line that shows work, and its time, which is estimated unless the line is `timed`."""

    line: int
    text: str
    time: float | None = None
    timed: bool = False


@dataclass
class _Bar:
    """A progress bar: when its clock stood at zero, and its last state."""

    zero: float | None
    clock: float
    done: float


@dataclass
class Work:
    """The signs of one attempt. `longest` is the longest pause between two of them, in seconds.

    `loose` counts the signs since the last whose time is known, `most_loose` is the most between two such.
    `said` is the last line with a time that is more than a sign of life, `until` the time of the last line;
    `untimed` counts the lines after `said`; `waits` is the first of them that says that the program waits or
    tries again.
    """

    last: Sign | None = None
    phase: Sign | None = None
    longest: float = 0.0
    count: int = 0
    loose: int = 0
    most_loose: int = 0
    now: float | None = None
    guessed: bool = False
    heard: bool = False  # a time since the last bar began
    blocks: int = 0
    bars: dict[str, _Bar] = field(default_factory=dict)
    said: Sign | None = None
    until: float | None = None
    untimed: int = 0
    waits: Sign | None = None
    wrote: Sign | None = None  # see `_word`
    waited: float = 0.0  # seconds that pass from line to line of a program that says that it waits
    parted: bool = False  # that line says that the program was asked to end
    dateless: bool = False  # its times count from some midnight

    @property
    def known(self) -> bool:
        """Whether the time of the last sign is known well enough to speak of the silence after it."""
        return self.now is not None and self.loose <= max(self.most_loose, LOOSE)

    def add(self, view: View, number: int, hints: Set[str], latest: float) -> None:
        """Take the signs among the log's next lines, the view's own; `number` is that of the first.

        `latest` is when the log was last written: the year of times without one.
        """
        text, kinds = view.text, present(SIGNS, hints)
        if not kinds:
            return
        self.blocks += 1
        full = self.blocks <= FULL_BLOCKS
        places = {at: item for item in kinds for at in _signs(text, item, full=full)}
        before, line = 0, -1
        for at in sorted(places):
            line = view.offset(at) if line < 0 else line + text.count(b"\n", before, at)
            shown = clean(_state(text, at)[:TEXT_CHARS].decode("utf-8", "replace")).strip()
            own = self._time(shown, latest)
            if own is None:
                self._hear(self._time_between(text, before, at, latest))
            before = at
            self._take(Sign(number + line - view.start, shown, own, own is not None), places[at])

    def end(self, lines: Sequence[bytes], number: int, latest: float) -> None:
        """Take the last lines of the attempt; `number` is that of the line after them."""
        below: float | None = None
        shapes = dict[str, float]()  # of lines that say again that the program waits: the last one's seconds
        for back, line in enumerate(reversed(lines[-TAIL_LINES:]), 1):
            shown = clean(line[:TEXT_CHARS].decode("utf-8", "replace"))
            text = shown.strip()
            if _SLURM.search(text) or not text:
                continue
            time = self._time(text, latest) if CLOCK.search(line) else None
            if self.last is not None and number - back > self.last.line:
                self._word(Sign(number - back, text, time), below, mute=_MUTE.search(shown) is not None)
            below = time or below
            if time is None:
                shape = _DIGITS.sub("", text)
                self.untimed += shape not in shapes
                if _WAITS.search(text):
                    passed = _PASSED.search(text)
                    seconds = float(passed[1]) if passed is not None else 0.0
                    self.waited = max(self.waited, shapes.setdefault(shape, seconds) - seconds)
                continue
            if self.until is None:
                self.until, self.parted = time, _PARTING.search(text) is not None
            if _WAITS.search(text):
                self.waits = Sign(number - back, text, time, True)
            if not _IDLE.search(text):
                self.said = Sign(number - back, text, time, True)
                return

    def _word(self, sign: Sign, below: float | None, *, mute: bool) -> None:
        """Keep what was said without a time after the last sign of work and before the next line with one,
        with that line's time: it was said before."""
        if sign.time is not None:
            self.wrote = None
        elif self.wrote is None and not mute:
            self.wrote = Sign(sign.line, sign.text, below)

    def _time(self, text: str, latest: float) -> float | None:
        """The line's own time. In a log that has shown no date its clock alone, on the day of the last one or
        the next."""
        time = find_time(text, latest)
        if time is not None and self.dateless:
            self.dateless, self.now, self.bars = False, None, {}
        clock = clock_of(text) if time is None and (self.dateless or self.now is None) else None
        if clock is None:
            return time
        self.dateless, now = True, self.now or 0.0
        day = now - now % DAY_S
        return day + clock + (DAY_S if clock < now - day - DAY_S / 2 else 0.0)

    def _time_between(self, text: bytes, start: int, end: int, latest: float) -> float | None:
        """The last time in a line of its own between two places, not too far from the second."""
        start, end = max(start, end - ABOVE_BYTES), text.rfind(b"\n", start, end)
        while end > start:
            begin = text.rfind(b"\n", start, end) + 1 or start
            line = text[begin : min(end, begin + TEXT_CHARS)]
            time = self._time(line.decode("utf-8", "replace"), latest) if CLOCK.search(line) else None
            if time is not None:
                return time
            end = begin - 1
        return None

    def _take(self, sign: Sign, item: Kind) -> None:
        before, bar = self.now, _BAR.search(sign.text) if item is BAR else None
        if sign.time is not None:
            self._hear(sign.time)
            self.most_loose = max(self.most_loose, self.loose)
            placed = True
        elif bar is not None:
            if not self._moves(bar):
                return
            placed = self.bars[bar["name"]].zero is not None
        else:
            placed = False
        self.loose = 0 if placed else self.loose + 1
        if before is not None and self.now is not None:
            self.longest = max(self.longest, self.now - before)
        self.last = Sign(sign.line, sign.text, self.now, sign.timed)
        self.count += 1
        if item in PHASES:
            self.phase = self.last

    def _hear(self, time: float | None) -> None:
        """A line's own time: it corrects what a bar's clock let guess."""
        if time is None:
            return
        if self.guessed and self.now is not None and time < self.now:
            for bar in self.bars.values():
                bar.zero = min(bar.zero, time - bar.clock) if bar.zero is not None else None
            self.now = time
        self.now, self.guessed, self.heard = max(time, self.now or time), False, True

    def _moves(self, match: re.Match[str]) -> bool:
        """Whether the bar goes on since its last state. Sets the time by the bar's clock."""
        clock = 3600 * int(match["hours"] or 0) + 60 * int(match["minutes"]) + int(match["seconds"])
        done, bar = float(match["done"]), self.bars.get(match["name"])
        begins = bar is None or clock < bar.clock
        if bar is None or clock < bar.clock:
            # A bar that begins long after the last line with a time began nobody knows when.
            self.bars[match["name"]] = bar = _Bar(self.now if self.heard else None, 0.0, 0.0)
            self.heard = False
        moved = done > bar.done or (begins and done == 0)
        bar.clock, bar.done = float(clock), done
        if moved and bar.zero is not None and bar.zero + clock > (self.now or 0.0):
            self.now, self.guessed = bar.zero + clock, True
        return moved


def _signs(text: bytes, item: Kind, *, full: bool) -> list[int]:
    """Where signs of the kind stand: the last one, and in full some before it, spread over the text."""
    last = text.rfind(item.literal)
    if last < 0 or (not full and shows(_state(text, last), item)):
        return [last] if last >= 0 else []
    found = [at for at in _places(text, item) if shows(_state(text, at), item)]
    at = text.find(item.literal, found[-1] + 1) if found else -1
    for _ in range(MOST_AFTER):  # the last of these may come after the last that was looked at
        if at < 0:
            break
        if shows(_state(text, at), item):
            found.append(at)
        at = text.find(item.literal, at + 1)
    return found


def _places(text: bytes, item: Kind) -> Iterator[int]:
    """Some places of the kind's literal, spread over the text."""
    at = text.find(item.literal)
    while at >= 0:
        yield at
        at = text.find(item.literal, at + 1 + len(text) // MOST)


def _state(text: bytes, at: int) -> bytes:
    """The line around `at`, or the state of a progress bar in it."""
    start, end = line_at(text, at)
    start = max(start, text.rfind(b"\r", start, at) + 1)
    stop = text.find(b"\r", at, end)
    return text[start : end if stop < 0 else stop]
