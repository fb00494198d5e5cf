"""What the log of RLix's driver says about each pipeline, in one pass. Plain data, without a verdict.

The driver prints ids that RLix makes up. It admits pipelines one after the other, in the order of their
wrappers, and prints the id of each before it goes on. So the n-th id that appears is the n-th pipeline.
Source of the lines: rlops/rlix `nemo` f77d913, `examples/start_nemo_rl_multi_pipeline.py`,
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
COUNT = r"\d{1,9}"  # a longer number is no count, and may exceed what Python reads
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
    "verify_model",
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
# Where no engine exists yet, this line follows the line that begins a shrink.
NOT_SHRUNK = re.compile(rf"\[{ID}\] _shrink_workers: policy_generation not initialized")
EXPAND_FAILED = re.compile(rf"\[{ID}\] _expand_workers FAILED")
RETURNED = re.compile(rf"^pipeline {ID} run\(\) returned successfully")
RAISED = re.compile(rf"^pipeline {ID} run\(\) raised: (?P<text>.*)")
UNREGISTER = re.compile(rf"^pipeline {ID} (?:unregistered|unregister failed)")
ANY_ID = re.compile(rf"\b{ID}\b")
# An id is a new pipeline only in these lines; other text may hold anything.
OF_ACTOR = re.compile(rf"^\[RLIX_(?:HOOK|PPL) {ID}\]")
OF_DRIVER = re.compile(rf"(?:^pipeline |armed on |waiting for ){ID} ")
OF_WORKER = re.compile(r"(?:^|/)worker-[^/]*\.out$")
DONE = re.compile(rf"^done!!! successes=(?P<good>{COUNT}) failures=(?P<bad>{COUNT})\b")
SHUTDOWN = re.compile(r"orchestrator\.shutdown called: force=\S+ reason=(?P<reason>.*?) source=")
SWALLOWED = re.compile(r"Error in async loop: (?P<text>.*)")
# Source: `model_update_service.py`, and the fork's `vllm_backend.py`. For pipelines of NeMo-RL a comparison
# in which nothing differs prints no line.
UNEQUAL = re.compile(r"\bverify_model: (?P<text>\w+ mismatch: expected=\S+ actual=\S+)")
EQUAL = re.compile(rf"\bverify_model_ok pipeline_id={ID}")
# The run itself prints this line and then ends the driver; see `jobspec.runtime.drivers.rlix.driver`.
BROKE = re.compile(r"^jobspec: pipeline `(?P<name>[^`]+)` broke before its first train step: (?P<text>.*)")
RAISED_LAST = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Exit|Interrupt)\b(?:\(.*?\))?:? .*|^\w+Error$")


@dataclass(frozen=True)
class Line:
    """One line with its place among all lines that were read, counted over all files."""

    at: int
    item: EvidenceItem
    version: int = 0
    ranks: tuple[int, ...] = ()


@dataclass
class PipelineSeen:
    """The lines about one pipeline. `before` and `after` are by train step, counted from 0.

    Only places within one file compare, so `own_before` and `own_after` keep the worker's own log apart.
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
    error: str = ""  # the last line of the traceback, or the error in `raised`
    swallowed: Line | None = None  # the training loop's own error; NeMo-RL returns all the same
    swallowed_text: str = ""

    @property
    def steps(self) -> tuple[dict[int, Line], dict[int, Line]]:
        """`before` and `after` from the file that has more of them."""
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
    broke: Line | None = None  # ended the run, since the driver still waited for this pipeline
    broken: str = ""  # its name
    broken_why: str = ""
    unequal: Line | None = None  # engines with other weights than the trainer, by RLix's own comparison
    unequal_text: str = ""
    equal: dict[str, Line] = field(default_factory=dict)  # by id of the pipeline

    def knows(self, name: str) -> bool:
        return any(pipeline.id == name for pipeline in self.pipelines)

    def of(self, name: str) -> PipelineSeen:
        pipeline = next((pipeline for pipeline in self.pipelines if pipeline.id == name), None)
        if pipeline is None:
            pipeline = PipelineSeen(name)
            self.pipelines.append(pipeline)
        return pipeline


def see(evidence: Evidence) -> Seen:
    """What the driver's log of the last attempt says; for a run that jobspec did not launch, every log.

    Ray repeats its workers' lines in the driver's log with some delay, so the last lines may be missing at
    its end. The workers' own logs then give the missing steps.
    """
    reader = _Reader()
    attempt = evidence.last
    if attempt is None:
        return reader.seen
    workers = [log for log in attempt.logs if OF_WORKER.search(log.path)]
    driver = attempt.log(RUN)
    if evidence.foreign:
        logs = [log for log in attempt.own_logs if log not in workers]
    else:
        logs = [driver] if driver is not None else []
    for log in logs:
        reader.read(evidence.root / log.path, log.path)
    steps = {part.steps for part in evidence.plan.expect.parts} or {0}
    if any(
        len(pipeline.after) < max(steps) or len(pipeline.before) != len(pipeline.after)
        for pipeline in reader.seen.pipelines
    ):
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
    broken: str = ""  # process whose loop broke; the lines of its error follow

    def read(self, path: Path, name: str, late: bool = False) -> None:
        """Read one log. `late` reads only the steps of known pipelines, from a worker's own log."""
        for hinted in find_lines(path, self.hints):
            self.at += 1
            text = strip_ansi(hinted.text)
            line = Line(self.at, EvidenceItem(name, hinted.number, text.strip()[:300]))
            if not late:
                self._take(text, line)
            elif (named := OF_ACTOR.match(text)) and self.seen.knows(named["id"]):
                pipeline = self.seen.of(named["id"])
                _take_step(text, line, pipeline.own_before, pipeline.own_after)

    def _take(self, text: str, line: Line) -> None:
        if (match := UNEQUAL.search(text)) and self.seen.unequal is None:
            self.seen.unequal, self.seen.unequal_text = line, match["text"]
        elif match := EQUAL.search(text):
            self.seen.equal.setdefault(match["id"], line)
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
        elif who in self.actors and (match := SWALLOWED.search(body)):
            pipeline = self.seen.of(self.actors[who])
            pipeline.swallowed, pipeline.swallowed_text = line, match["text"].strip()
            self.broken = who if "ray::" in body else ""
        elif who and who == self.broken and RAISED_LAST.match(body):
            self.seen.of(self.actors[who]).swallowed_text = body.strip()
        elif not who and (match := BROKE.match(body)):
            self.seen.broke, self.seen.broken = line, match["name"]
            self.seen.broken_why = match["text"].strip()
        elif not who and (match := DONE.match(body)):
            self.seen.done = line
            self.seen.successes, self.seen.failures = int(match["good"]), int(match["bad"])
        elif self.seen.shutdown is None and (match := SHUTDOWN.search(body)):
            self.seen.shutdown, self.seen.reason = line, match["reason"].strip("'\"")
        elif self.open_traceback and not who and RAISED_LAST.match(body):
            self.seen.of(self.open_traceback).error = body.strip()

    def _of_driver(self, body: str, line: Line, pipeline: PipelineSeen, who: str) -> bool:
        """Whether the driver itself printed the line, and no actor with a text like the driver's."""
        if who or not body.startswith("pipeline "):
            return False
        if RETURNED.match(body):
            pipeline.returned = line
        elif match := RAISED.match(body):
            pipeline.raised, pipeline.error, self.open_traceback = line, match["text"].strip(), pipeline.id
        elif UNREGISTER.match(body):
            self.open_traceback = ""
        return True


def _of_pipeline(body: str, line: Line, pipeline: PipelineSeen) -> None:
    if _take_step(body, line, pipeline.before, pipeline.after):
        return
    if match := SHRINK.search(body):
        pipeline.shrinks.append(Line(line.at, line.item, ranks=_ranks(match["ranks"])))
    elif NOT_SHRUNK.search(body):
        del pipeline.shrinks[-1:]
    elif match := EXPAND.search(body):
        ranks = _ranks(match["ranks"])
        pipeline.expands.append(Line(line.at, line.item, int(match["version"]), ranks))
    elif EXPAND_FAILED.search(body):
        pipeline.failed_expand = pipeline.failed_expand or line


def _take_step(body: str, line: Line, before: dict[int, Line], after: dict[int, Line]) -> bool:
    """Whether the line is about a train step; the first one about it counts."""
    if match := BEFORE.search(body):
        before.setdefault(int(match["step"]), line)
    elif match := AFTER.search(body):
        after.setdefault(int(match["step"]), Line(line.at, line.item, version=int(match["version"])))
    return match is not None


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(int(part[:9]) for part in text.split(",") if part.strip())


def overlap(first: PipelineSeen, second: PipelineSeen) -> tuple[Line, Line] | None:
    """Two lines that show both pipelines under way at the same time; None when one followed the other."""
    spans, others = _spans(first), _spans(second)
    for path in sorted(spans.keys() & others.keys()):
        begin = max(spans[path][0], others[path][0], key=_at)
        end = min(spans[path][1], others[path][1], key=_at)
        if begin.at < end.at:
            return begin, end
    return None


def _spans(pipeline: PipelineSeen) -> dict[str, tuple[Line, Line]]:
    """The first and the last line about a pipeline's train steps, in each file."""
    spans: dict[str, tuple[Line, Line]] = {}
    for line in sorted((*pipeline.before.values(), *pipeline.after.values()), key=_at):
        spans[line.item.file] = (spans.get(line.item.file, (line, line))[0], line)
    return spans


def _at(line: Line) -> int:
    return line.at


def names(seen: Seen, planned: tuple[str, ...]) -> Iterator[tuple[str, PipelineSeen]]:
    """Each planned pipeline with its lines; without a plan every pipeline of the log, by id."""
    if not planned:
        yield from ((pipeline.id, pipeline) for pipeline in seen.pipelines)
        return
    for index, name in enumerate(planned):
        yield name, seen.pipelines[index] if index < len(seen.pipelines) else PipelineSeen("")
