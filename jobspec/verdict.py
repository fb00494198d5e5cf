"""The types of a verdict: deliverables, their evidence, and the conclusion.

Plain frozen data and no rules: `jobspec.judging.judge` judges, `jobspec.report` renders.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from jobspec.finding import Finding


class Status(StrEnum):
    """What became of one deliverable. `Blocked` is a cause outside what is tested."""

    PASS = "Pass"
    FAIL = "Fail"
    BLOCKED = "Blocked"
    SKIPPED = "Skipped"
    NOT_REQUESTED = "Not requested"


class Result(StrEnum):
    """What became of the run."""

    PASS = "Pass"
    FAIL = "Fail"
    BLOCKED = "Blocked"
    NOTHING_RAN = "Nothing ran"


# The reason of a deliverable when a package came from another checkout: the run has no evidence then.
VOID = "the run is void"
IMPORT_PROOF = "Import proof"
NOT_APPLICABLE = "not applicable, blocked by"  # how the reason of such a variant begins
SUSPICIOUS, RESIDUAL_NOISE = "verdict.suspicious-line", "verdict.residual-noise"  # rules of findings
NAMED = "node.named"  # the rule of a finding about a node that evidence names as broken
AGENT_KILLED = "agent.killed"  # the class of a cause that clears nothing: the tested command may have done it
LOCAL_IMPORT = "Local Bridge import in "  # begins the name of that deliverable of the guides
EXIT_CODES = {Result.PASS: 0, Result.FAIL: 1, Result.BLOCKED: 3, Result.NOTHING_RAN: 4}


@dataclass(frozen=True)
class EvidenceItem:
    """One piece of evidence: a line of a file, or a metric and its value, or both.

    `file` is relative to the run directory where it lies below it. `line` counts from 1, 0 is the whole file.
    """

    file: str = ""
    line: int = 0
    text: str = ""
    metric: str = ""
    value: float | None = None


@dataclass(frozen=True)
class Deliverable:
    """One thing that a coverage level asks for, and what supports its status.

    `reason` says why the status is not `Pass`, or for a pass what the evidence shows. A deliverable with
    `required=False` is reported but does not decide the result. A `settled` deliverable, such as an import
    proof, was decided before the driver: the end of the run cannot change it. `limits` are what its evidence
    leaves open; they join the limitations of the verdict. `fix` is the next step where it did not pass.
    """

    name: str
    status: Status
    evidence: tuple[EvidenceItem, ...] = ()
    reason: str = ""
    required: bool = True
    settled: bool = False
    limits: tuple[str, ...] = ()
    fix: str = ""


@dataclass(frozen=True)
class Cause:
    """The earliest specific cause of a run that did not pass.

    `kind` is the class of the cause (`network`, `disk`, `gpu-memory`, ...). `verdict` is `Fail` or `Blocked`.
    `time` is seconds since the epoch, 0 where the evidence has none. `context` holds the lines around.
    """

    text: str
    kind: str
    verdict: Result
    file: str = ""
    line: int = 0
    node: str = ""
    time: float = 0.0
    why: str = ""
    fix: str = ""
    signature: str = ""
    source: str = ""
    context: tuple[str, ...] = ()


FIGURE_SHARE = 10  # the first and last value of a figure are means over 1/10 of the steps


@dataclass(frozen=True)
class Figure:
    """A number worth a place in the summary: first and last value of a metric."""

    name: str
    metric: str
    first: float
    last: float
    unit: str = ""
    steps: int = 0


@dataclass(frozen=True)
class AttemptVerdict:
    """What became of one attempt; a requeued run has several."""

    number: int
    outcome: str
    exit_code: int | None
    reason: str = ""
    start: float = 0.0
    end: float = 0.0
    steps: tuple[int, int] | None = None


@dataclass(frozen=True)
class Beside:
    """One thing in the run that was repeated and in this one; `word` is same, differs or can't tell."""

    name: str
    first: str
    now: str
    word: str
    reason: str = ""


@dataclass(frozen=True)
class Reproduction:
    """The run beside the one whose lock it repeats; `problem` says why there is nothing to compare with."""

    run_id: str
    folder: str
    rows: tuple[Beside, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Verdict:
    """The conclusion about one run: derived from evidence files, never from exit codes alone.

    `number` and `proves` are the level's own, `guide` names the deliverables of the framework's guide.
    """

    result: Result
    level: str
    deliverables: tuple[Deliverable, ...] = ()
    first_cause: Cause | None = None
    limitations: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    figures: tuple[Figure, ...] = ()
    attempts: tuple[AttemptVerdict, ...] = ()
    reason: str = ""
    number: int | None = None
    proves: str = ""
    guide: tuple[str, ...] = ()
    reproduction: Reproduction | None = None

    @property
    def exit_code(self) -> int:
        """0 Pass, 1 Fail, 3 Blocked, 4 nothing ran."""
        return EXIT_CODES[self.result]

    @property
    def cause_title(self) -> str:
        """What to call `first_cause`: a deliverable that did not pass is what is seen, and no cause of it."""
        cause = self.first_cause
        seen = cause is not None and any(
            (i.name, i.reason) == (cause.kind, cause.text) for i in self.deliverables
        )
        several = sum(i.status in (Status.FAIL, Status.BLOCKED) for i in self.deliverables) > 1
        return ("one that did not pass" if several else "what did not pass") if seen else "first cause"

    def deliverable(self, name: str) -> Deliverable | None:
        """The deliverable called `name`, or None."""
        return next((item for item in self.deliverables if item.name == name), None)


def lacks_only_imports(deliverables: Iterable[Deliverable]) -> bool:
    """Whether a proof of an import is all that a run lacks."""
    statuses = (Status.PASS, Status.NOT_REQUESTED)
    open_names = [item.name for item in deliverables if item.required and item.status not in statuses]
    return bool(open_names) and all(name.startswith((IMPORT_PROOF, LOCAL_IMPORT)) for name in open_names)


def void_item(deliverables: Iterable[Deliverable]) -> Deliverable | None:
    """The deliverable that says that a package came from elsewhere than the checkout under test."""
    return next(
        (item for item in deliverables if item.status is Status.BLOCKED and VOID in item.reason), None
    )


def is_void(deliverables: Iterable[Deliverable]) -> bool:
    return void_item(deliverables) is not None
