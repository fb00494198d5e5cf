"""What the log of RLix's driver says about each pipeline, in one pass. Data only, nothing judged.

The driver prints ids that RLix makes up. Pipelines are admitted one after the other, in the order of their
wrappers, and the driver names each id before it goes on to the next one: the n-th id that appears is the n-th
pipeline. Source of the lines: rlops/rlix `nemo` f77d913, `examples/start_nemo_rl_multi_pipeline.py`,
`rlix/pipeline/nemo_rl_pipeline.py`, `rlix/orchestrator/orchestrator.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.frameworks.rlix.commands import RUN
from jobspec.log_search import Hints, find_lines
from jobspec.log_text import strip_ansi
from jobspec.verdict import EvidenceItem

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence

ID = r"(?P<id>(?:ft|lora)_[0-9a-f]+)"
COUNT = r"\d{1,9}"  # more digits are no count, and may be more than Python reads
HINTS = (
    "RLIX_",
    "_workers",
    "pipeline",
    "done!!!",
    "orchestrator.shutdown",
    "async loop",
    "broke before",
    "Error",
    "Exception",
)
ACTOR = re.compile(r"^\((?:[^()]* )?pid=(?P<pid>\d+)(?:, ip=(?P<ip>[\w.:-]+))?\)")
BEFORE = re.compile(rf"\[RLIX_HOOK {ID}\] before_training step=(?P<step>{COUNT}) .*granted")
AFTER = re.compile(
    rf"\[RLIX_HOOK {ID}\] after_training step=(?P<step>{COUNT}) .*version=(?P<version>-?{COUNT})"
)
SHRINK = re.compile(rf"\[RLIX_PPL {ID}\] _shrink_workers START dp_ranks=\[(?P<ranks>[\d, ]*)\]")
EXPAND = re.compile(
    rf"\[RLIX_PPL {ID}\] _expand_workers DONE dp_ranks=\[(?P<ranks>[\d, ]*)\]"
    rf".*weight_version=(?P<version>-?{COUNT})"
)
# Printed after the line that begins a shrink, where there were no engines yet.
NOT_SHRUNK = re.compile(rf"\[{ID}\] _shrink_workers: policy_generation not initialized")
EXPAND_FAILED = re.compile(rf"\[{ID}\] _expand_workers FAILED")
RETURNED = re.compile(rf"^pipeline {ID} run\(\) returned successfully")
RAISED = re.compile(rf"^pipeline {ID} run\(\) raised: (?P<text>.*)")
UNREGISTER = re.compile(rf"^pipeline {ID} (?:unregistered|unregister failed)")
ANY_ID = re.compile(rf"\b{ID}\b")
# Only in these lines does an id stand for a pipeline that is new; text may hold anything.
OF_ACTOR = re.compile(rf"^\[RLIX_(?:HOOK|PPL) {ID}\]")
OF_DRIVER = re.compile(rf"(?:^pipeline |armed on |waiting for ){ID} ")
OF_WORKER = re.compile(r"(?:^|/)worker-[^/]*\.out$")
DONE = re.compile(rf"^done!!! successes=(?P<good>{COUNT}) failures=(?P<bad>{COUNT})\b")
SHUTDOWN = re.compile(r"orchestrator\.shutdown called: force=\S+ reason=(?P<reason>.*?) source=")
SWALLOWED = re.compile(r"Error in async loop: (?P<text>.*)")
# Said by the run itself, which then ends the driver; see `jobspec.runtime.drivers.rlix.driver`.
BROKE = re.compile(r"^jobspec: pipeline `(?P<name>[^`]+)` broke before its first train step: (?P<text>.*)")
RAISED_LAST = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Exit|Interrupt)\b(?:\(.*?\))?:? .*|^\w+Error$")


@dataclass(frozen=True)
class Line:
    """One line with its place among those that were read, counted over all files."""

    at: int
    item: EvidenceItem
    version: int = 0
    ranks: tuple[int, ...] = ()


@dataclass
class PipelineSeen:
    """What was printed about one pipeline. `before` and `after` are by train step, which counts from 0.

    Places of lines are compared within one file alone: what the worker's own log says is kept apart.
    """

    id: str
    before: dict[int, Line] = field(default_factory=dict)
    after: dict[int, Line] = field(default_factory=dict)
    own_before: dict[int, Line] = field(default_factory=dict)
    own_after: dict[int, Line] = field(default_factory=dict)
    shrinks: list[Line] = field(default_factory=list)
    expands: list[Line] = field(default_factory=list)
    failed_expand: Line | None = None
    returned: Line | None = None
    raised: Line | None = None
    error: str = ""  # what it raised, the last line of the traceback where there is one
    swallowed: Line | None = None  # the loop's own error, after which NeMo-RL returns as if all were well
    swallowed_text: str = ""

    @property
    def steps(self) -> tuple[dict[int, Line], dict[int, Line]]:
        """`before` and `after` as the file tells them that has more of them."""
        own, driver = (self.own_before, self.own_after), (self.before, self.after)
        return own if sum(map(len, own)) > sum(map(len, driver)) else driver


@dataclass
class Seen:
    """Pipelines in the order in which their ids appear, the driver's last line, and RLix's own shutdown."""

    pipelines: list[PipelineSeen] = field(default_factory=list)
    done: Line | None = None
    successes: int = 0
    failures: int = 0
    shutdown: Line | None = None
    reason: str = ""
    broke: Line | None = None  # where the run was ended for a pipeline that the driver still waited for
    broken: str = ""  # its name
    broken_why: str = ""

    def knows(self, name: str) -> bool:
        return any(one.id == name for one in self.pipelines)

    def of(self, name: str) -> PipelineSeen:
        found = next((one for one in self.pipelines if one.id == name), None)
        if found is None:
            found = PipelineSeen(name)
            self.pipelines.append(found)
        return found


def see(evidence: Evidence) -> Seen:
    """Read the driver's log of the last attempt; of files that jobspec did not launch, every log.

    Ray repeats its workers' lines in the driver's log with some delay, and the last ones may be missing when
    the driver ends. Workers' own logs then tell of the steps that it does not have.
    """
    reader = _Reader()
    attempt = evidence.last
    if attempt is None:
        return reader.seen
    workers = [log for log in attempt.logs if OF_WORKER.search(log.path)]
    driver = attempt.log(RUN)
    if evidence.foreign:
        logs = [log for log in attempt.logs if log not in workers and log.path not in attempt.check_logs]
    else:
        logs = [driver] if driver is not None else []
    for log in logs:
        reader.read(evidence.root / log.path, log.path)
    steps = {part.steps for part in evidence.plan.expect.parts} or {0}
    if any(len(one.after) < max(steps) or len(one.before) != len(one.after) for one in reader.seen.pipelines):
        for log in workers:
            reader.read(evidence.root / log.path, log.path, late=True)
    return reader.seen


@dataclass
class _Reader:
    seen: Seen = field(default_factory=Seen)
    hints: Hints = field(default_factory=lambda: Hints(HINTS))
    at: int = 0
    actors: dict[str, str] = field(default_factory=dict)  # process of a pipeline's actor -> id
    open_traceback: str = ""  # id of the pipeline whose traceback the driver is printing
    broken: str = ""  # process whose loop broke by an error from elsewhere, which follows line by line

    def read(self, path: Path, name: str, late: bool = False) -> None:
        """`late`: only steps of known pipelines, from the log of the worker that printed them."""
        for found in find_lines(path, self.hints):
            self.at += 1
            text = strip_ansi(found.text)
            line = Line(self.at, EvidenceItem(name, found.number, text.strip()[:300]))
            if not late:
                self._take(text, line)
            elif (named := OF_ACTOR.match(text)) and self.seen.knows(named["id"]):
                one = self.seen.of(named["id"])
                _take_step(text, line, one.own_before, one.own_after)

    def _take(self, text: str, line: Line) -> None:
        actor = ACTOR.match(text)
        body = text[actor.end() :].strip() if actor else text
        who = f"{actor['ip'] or ''}:{actor['pid']}" if actor else ""
        new = OF_ACTOR.match(body) or (None if who else OF_DRIVER.search(body))
        named = new or ANY_ID.search(body)
        if named and (new or self.seen.knows(named["id"])):
            pipeline = self.seen.of(named["id"])
            if who and named.re is OF_ACTOR:
                self.actors[who] = pipeline.id
            if not self._of_driver(body, line, pipeline, who):
                _of_pipeline(body, line, pipeline)
        elif who in self.actors and (found := SWALLOWED.search(body)):
            one = self.seen.of(self.actors[who])
            one.swallowed, one.swallowed_text = line, found["text"].strip()
            self.broken = who if "ray::" in body else ""
        elif who and who == self.broken and RAISED_LAST.match(body):
            self.seen.of(self.actors[who]).swallowed_text = body.strip()
        elif not who and (found := BROKE.match(body)):
            self.seen.broke, self.seen.broken = line, found["name"]
            self.seen.broken_why = found["text"].strip()
        elif not who and (found := DONE.match(body)):
            self.seen.done = line
            self.seen.successes, self.seen.failures = int(found["good"]), int(found["bad"])
        elif self.seen.shutdown is None and (found := SHUTDOWN.search(body)):
            self.seen.shutdown, self.seen.reason = line, found["reason"].strip("'\"")
        elif self.open_traceback and not who and RAISED_LAST.match(body):
            self.seen.of(self.open_traceback).error = body.strip()

    def _of_driver(self, body: str, line: Line, one: PipelineSeen, who: str) -> bool:
        """Whether the driver itself said it, and no actor whose text looks like the driver's."""
        if who or not body.startswith("pipeline "):
            return False
        if RETURNED.match(body):
            one.returned = line
        elif found := RAISED.match(body):
            one.raised, one.error, self.open_traceback = line, found["text"].strip(), one.id
        elif UNREGISTER.match(body):
            self.open_traceback = ""
        return True


def _of_pipeline(body: str, line: Line, one: PipelineSeen) -> None:
    if _take_step(body, line, one.before, one.after):
        return
    if found := SHRINK.search(body):
        one.shrinks.append(Line(line.at, line.item, ranks=_ranks(found["ranks"])))
    elif NOT_SHRUNK.search(body):
        del one.shrinks[-1:]
    elif found := EXPAND.search(body):
        ranks = _ranks(found["ranks"])
        one.expands.append(Line(line.at, line.item, int(found["version"]), ranks))
    elif EXPAND_FAILED.search(body):
        one.failed_expand = one.failed_expand or line


def _take_step(body: str, line: Line, before: dict[int, Line], after: dict[int, Line]) -> bool:
    """Whether the line is about a train step; the first one about it counts."""
    if found := BEFORE.search(body):
        before.setdefault(int(found["step"]), line)
    elif found := AFTER.search(body):
        after.setdefault(int(found["step"]), Line(line.at, line.item, version=int(found["version"])))
    return found is not None


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(int(part[:9]) for part in text.split(",") if part.strip())


def overlap(one: PipelineSeen, other: PipelineSeen) -> tuple[Line, Line] | None:
    """Lines that show two pipelines under way at the same time; None when one had ended before the other."""
    mine, theirs = _spans(one), _spans(other)
    for path in sorted(mine.keys() & theirs.keys()):
        begin = max(mine[path][0], theirs[path][0], key=_at)
        end = min(mine[path][1], theirs[path][1], key=_at)
        if begin.at < end.at:
            return begin, end
    return None


def _spans(one: PipelineSeen) -> dict[str, tuple[Line, Line]]:
    """The first and the last line about a pipeline's train steps, in each file."""
    spans: dict[str, tuple[Line, Line]] = {}
    for line in sorted((*one.before.values(), *one.after.values()), key=_at):
        spans[line.item.file] = (spans.get(line.item.file, (line, line))[0], line)
    return spans


def _at(line: Line) -> int:
    return line.at


def names(seen: Seen, planned: tuple[str, ...]) -> Iterator[tuple[str, PipelineSeen]]:
    """Each planned pipeline with what was seen of it; without a plan all that were seen, by id."""
    if not planned:
        yield from ((one.id, one) for one in seen.pipelines)
        return
    for index, name in enumerate(planned):
        yield name, seen.pipelines[index] if index < len(seen.pipelines) else PipelineSeen("")
