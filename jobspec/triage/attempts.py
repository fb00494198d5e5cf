"""Attempts in one log: a job that was requeued, or a program that was started again, writes on in it.

A scheduler's end and then a start begin the next attempt; some lines announce it by themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Set
from dataclasses import dataclass, field

from jobspec.triage.addresses import Addresses
from jobspec.triage.course import Course
from jobspec.triage.landmarks import Kind, Landmark, find_all, kind, present
from jobspec.triage.match import Match
from jobspec.triage.work import Work

LEAST_HEAD = 25  # bytes without digits of a first line that may tell the program's start
MOST_HEADS = 20  # lines of that shape; where more have it, it tells no start
# The whole job ended; a step's end alone is followed by other steps.
JOB_ENDS = (
    kind("*** STEP ", r"\*\*\* STEP \S+ ON \S+ CANCELLED .*DUE TO"),
    kind("*** JOB ", r"\*\*\* JOB \d+ ON \S+ CANCELLED"),
    kind("DUE TO ", r"DUE TO (?:PREEMPTION|NODE FAIL|TIME LIMIT)"),
    kind("REQUEUED"),
)
# The program ended: only its own first line, printed again, is another start.
PROGRAM_ENDS = (kind("Exited with exit code"), kind("exit_code="))
STARTS = (
    kind("Starting with JobEnvironment"),  # submitit
    kind("Connecting to existing Ray cluster"),
    kind("Started a local Ray instance"),
    kind("Started local cluster with tag"),
    kind("Distributed environment: "),  # accelerate
    kind("Setting ds_accelerator to "),  # DeepSpeed
    kind("initializing torch distributed"),  # Megatron-LM
    kind("Automatically detected platform "),  # vLLM
    kind("nohup: ignoring input"),
    kind("estart", r"(?i)\brestart(?:ed|ing)?\b\D{0,12}[1-9]"),
    kind("equeued", r"(?i)^\W*(?:job|run)\b.*\brequeued\b"),
    kind("ttempt", r"^[=#*-]{2,} .*\b[Aa]ttempt\W{1,3}[1-9]"),
    kind("Job ", r"^\W*Job \d+ (?:on|started|starts|running|begins)\b"),
    kind("esuming from", r"(?i)\bresuming from\b"),
    kind("Loading checkpoint shards: "),
    kind("Initializing a V", r"Initializing an? V\d LLM engine"),
    kind("torchrun", r"^\W*(?:\S+ ){0,3}\S*torchrun\b.*\s--?\w"),
    kind("oading checkpoint", r"(?i)^(?:\[?[\w: .,-]+\]?\W*)?loading (?:the )?checkpoint\b"),
    kind("launch", r"^\+ (?:accelerate|deepspeed) .*\S|^\+ \S*torchrun "),
)
# These say by themselves that something was started before.
AGAIN = (
    kind("SLURM_RESTART_COUNT", r"SLURM_RESTART_COUNT\W{1,4}[1-9]"),
    kind("will restart worker group"),  # torchrun
    kind("restart_count", r"\brestart_count\W{1,4}[1-9]"),  # torchrun, and headers of job scripts
    kind("Restarts=", r"\bRestarts=[1-9]"),  # scontrol show job
)
# These too, unless a loop that waits or asks again says them: it has little to say between two.
FIRST_TRY = kind("ttempt", r"^\W*[Aa]ttempt\W{1,3}[01](?: ?(?:of|/) ?\d+)?\W*$")
RETRIES = (
    kind("ttempt", r"^\W*[Aa]ttempt\W{1,3}(?:[2-9]|[1-9]\d)(?: ?(?:of|/) ?\d+)?\W*$"),
    kind("estarting", r"^\W*[Rr]estarting\b\D{0,20}(?:[1-9]\d?)(?: ?(?:of|/) ?\d+)?\W*$"),
)
LEAST_TRY = 1000  # bytes that a program prints before it ends and is started again
ALL = (*JOB_ENDS, *PROGRAM_ENDS, *STARTS, *AGAIN, FIRST_TRY, *RETRIES)


@dataclass
class Attempts:
    """What a log has shown so far of ends and starts. `head` is the shape of its first line."""

    head: bytes | None = None
    seen: int = 0  # lines of that shape
    repeated: bool = False  # before any end: it tells no start of the program
    job_ended: bool = False
    program_ended: bool = False
    read: int = 0  # bytes
    tried: int | None = None  # where the last try was announced

    def starts(self, text: bytes, shapes: bytes, hints: Set[str]) -> Iterator[int]:
        """Where lines start that begin another attempt, in order. Takes the log's next whole lines, and these
        without their digits."""
        found: list[tuple[int, Kind | None]] = [(at, None) for at in self._heads(text, shapes)]
        found += [(at, mark) for mark in present(ALL, hints) for at in find_all(text, (mark,))]
        for at, mark in sorted(found, key=lambda item: item[0]):
            if self._begins(mark, self.read + at):
                self.job_ended = self.program_ended = False
                yield at
        self.read += len(text)

    def _begins(self, mark: Kind | None, at: int) -> bool:
        if mark in JOB_ENDS:
            self.job_ended = True
        elif mark in PROGRAM_ENDS:
            self.program_ended = True
        if mark is None and not (self.job_ended or self.program_ended):
            self.repeated = True
        told = self.program_ended and not self.repeated
        if mark == FIRST_TRY or mark in RETRIES:
            short = self.tried is not None and at - self.tried < LEAST_TRY
            self.tried = at
            return mark in RETRIES and (self.job_ended or self.program_ended or not short)
        return mark in AGAIN or (self.job_ended and mark in (None, *STARTS)) or (mark is None and told)

    def _heads(self, text: bytes, shapes: bytes) -> list[int]:
        """Where lines have the shape of the log's first line, but that line itself."""
        new = self.head is None
        if new:
            first = shapes.split(b"\n", 1)[0]
            told = len(first) < LEAST_HEAD or any(end.literal in first for end in (*JOB_ENDS, *PROGRAM_ENDS))
            self.head = b"" if told or first.startswith(b"+") or b"Warning" in first else first
        if not self.head or self.seen > MOST_HEADS or self.head not in shapes:
            return []
        places, at = list[int](), 0
        for number, (line, shape) in enumerate(zip(text.split(b"\n"), shapes.split(b"\n"), strict=True)):
            if shape == self.head and (number or not new):
                places.append(at)
            at += len(line) + 1
        self.seen += len(places)
        return places if self.seen <= MOST_HEADS else []


@dataclass
class Attempt:
    """What is kept of one attempt: course, signs of work, the last values of metrics, and of each signature
    the first match, the first after the last training step, the last, and the nodes that say it. `begun` is
    the first time in the log of a first attempt."""

    start: Landmark | None = None
    course: Course = field(default_factory=Course)
    work: Work = field(default_factory=Work)
    first: dict[str, Match] = field(default_factory=dict)
    since: dict[str, Match] = field(default_factory=dict)
    last: dict[str, Match] = field(default_factory=dict)
    trends: dict[str, deque[Match | None]] = field(default_factory=dict)
    speakers: dict[str, set[str]] = field(default_factory=dict)
    addresses: Addresses = field(default_factory=Addresses)
    begun: float | None = None

    def keep(self, match: Match) -> None:
        for kept in (self.first, self.since):
            if match.signature not in kept:
                kept[match.signature] = match
                return
        self.last[match.signature] = match

    def matches(self) -> list[Match]:
        """In the order of their lines."""
        matches = [*self.first.values(), *self.since.values(), *self.last.values()]
        for values in self.trends.values():
            bad = [value for value in values if value is not None]
            matches += bad[:1] if 2 * len(bad) > len(values) else []
        return sorted(matches, key=lambda match: match.line)

    def is_empty(self) -> bool:
        return (
            not self.first and self.work.last is None and self.course == Course(managed=self.course.managed)
        )
