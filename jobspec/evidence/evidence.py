"""The types of a run's evidence: frozen plain data, nothing read and nothing judged here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from jobspec.evidence.lost_answers import Lost, in_metrics
from jobspec.evidence.pytest_log import TestLog
from jobspec.evidence.tracker_files import TrackerFiles
from jobspec.finding import Finding
from jobspec.metrics import Table, continue_tables
from jobspec.plan import Plan, RepoPlan
from jobspec.triage import Match
from jobspec.verdict import EvidenceItem

GOOD = frozenset({"ok", "cached"})  # outcomes of a phase that ended well
Seconds = Annotated[float, Meta(ge=-1e18, le=1e18)]  # JSON has NaN and Infinity in Python: they are no times


@dataclass(frozen=True)
class Event:
    """One line of `events.jsonl`. `seconds` is None where the event gives no duration."""

    time: Seconds
    phase: str
    event: str
    node: str = ""
    outcome: str = ""
    seconds: Seconds | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    finding: Finding | None = None
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class PhaseResult:
    """One phase over all nodes; times are seconds since the epoch."""

    phase: str
    outcome: str
    start: Seconds = 0.0
    end: Seconds = 0.0


@dataclass(frozen=True)
class CommandResult:
    """One command of `phase`. `exit_code` is None when it never ended on its own.

    `tests` is what pytest says at the end of the log of a command of phase `checks`.
    """

    name: str
    exit_code: int | None = None
    start: Seconds = 0.0
    end: Seconds = 0.0
    log: str = ""
    signal: str = ""
    phase: str = "driver"
    tests: TestLog | None = None


@dataclass(frozen=True)
class ServiceResult:
    """One process of a service. `stopped`: it was ready, and alive when the run ended it.

    Other states are `starting`, `ready` (nobody said how it ended), `failed` (never ready) and `died`.
    """

    name: str
    node: str
    state: str = ""
    port: int = 0
    ready_s: Seconds | None = None
    exit_code: int | None = None
    start: Seconds = 0.0
    end: Seconds = 0.0
    log: str = ""


@dataclass(frozen=True)
class NodeFacts:
    """What the runtime saw of one node."""

    name: str
    index: int = 0
    ip: str = ""
    gpus: int = 0
    cpus: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RanCode:
    """A repository as the head saw it when the attempt started; `changed` names files unlike the submitted.

    `unknown` says why nothing can be told. `patch` is the file with what was not committed, relative to the
    attempt's folder, where the run was told to record a difference.
    """

    commit: str = ""
    branch: str = ""
    uncommitted: tuple[str, ...] = ()
    uncommitted_sha256: str = ""
    changed: tuple[str, ...] = ()
    unknown: str = ""
    patch: str = ""

    def differs(self, submitted: RepoPlan) -> bool:
        return not self.unknown and (bool(self.changed) or self.commit != submitted.commit)


@dataclass(frozen=True)
class Results:
    """`results.json`, the last file that the head writes in an attempt.

    `collecting`: a first version, and the head never came to write the last one.
    """

    outcome: str
    exit_code: int | None = None
    findings: tuple[Finding, ...] = ()
    phases: tuple[PhaseResult, ...] = ()
    commands: tuple[CommandResult, ...] = ()
    services: tuple[ServiceResult, ...] = ()
    nodes: tuple[NodeFacts, ...] = ()
    imports: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # module -> node -> file
    collect: Mapping[str, Any] = field(default_factory=dict)
    code: Mapping[str, RanCode] = field(default_factory=dict)  # by repository
    file: str = ""
    collecting: bool = False


@dataclass(frozen=True)
class LogFile:
    """One log; `path` is relative to the run directory, `node` empty for the batch script's log."""

    path: str
    node: str
    bytes: int


@dataclass(frozen=True)
class Attempt:
    """One start of the job. `results` is None when the head never wrote them."""

    number: int
    folder: str
    events: tuple[Event, ...] = ()
    results: Results | None = None
    logs: tuple[LogFile, ...] = ()
    metrics: Table = field(default_factory=Table)
    matches: tuple[Match, ...] = ()
    lost: tuple[Lost, ...] = ()  # as lines of its logs tell

    def ended(self, phase: str) -> Event | None:
        """The run-level `end` event of `phase`, of several the first bad one; None without such an event."""
        ends = [e for e in self.events if e.phase == phase and e.event == "end" and not e.node]
        return next((e for e in ends if e.outcome not in GOOD), ends[0] if ends else None)

    def outcomes(self, phase: str) -> tuple[str, ...]:
        """Every recorded outcome of `phase`: of the run, of its nodes, and of `results.json`."""
        said = [e.outcome for e in self.events if e.phase == phase and e.event == "end"]
        phases = self.results.phases if self.results else ()
        return (*said, *(item.outcome for item in phases if item.phase == phase))

    def outcome(self, phase: str) -> str:
        """`ok`, `failed`, `blocked`, `skipped`, `cached`; empty when nothing says how `phase` ended."""
        event = self.ended(phase)
        if event is not None:
            return event.outcome
        phases = self.results.phases if self.results else ()
        return next((item.outcome for item in phases if item.phase == phase), "")

    def started(self, phase: str) -> bool:
        return any(event.phase == phase for event in self.events)

    def command(self, name: str) -> CommandResult | None:
        commands = self.results.commands if self.results else ()
        return next((item for item in commands if item.name == name), None)

    def log(self, command: str) -> LogFile | None:
        """The log of `command`, the head's one where several nodes have it."""
        return next((item for item in self.logs if Path(item.path).stem == command), None)

    @property
    def side_logs(self) -> frozenset[str]:
        """Paths of the logs of tests and services: they say nothing of what the driver did.

        Tests provoke errors, and so does the code that a sandbox runs.
        """
        commands = self.results.commands if self.results else ()
        named = {item.log for item in commands if item.phase == "checks" and item.log}
        # The runtime names them so; while the tests run there is no `results.json` yet.
        beside = (log.path for log in self.logs if Path(log.path).stem.startswith(("checks-", "service-")))
        return frozenset({*named, *beside})

    @property
    def own_logs(self) -> tuple[LogFile, ...]:
        """Logs that tell of the driver: not those of `side_logs`."""
        beside = self.side_logs
        return tuple(log for log in self.logs if log.path not in beside)

    @property
    def own_matches(self) -> tuple[Match, ...]:
        """Matches that tell of the driver: not those of `side_logs`, nor a service's lines in the job's log.

        The job's log repeats findings, and that of a service has the last lines of its log.
        """
        beside = self.side_logs
        told = "\n".join(item.why for item in self.findings if item.rule.startswith("service."))
        return tuple(
            match for match in self.matches if match.file not in beside and not _repeats(match, told)
        )

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings of the runtime, in order of time, each once."""
        findings = [event.finding for event in self.events if event.finding is not None]
        findings.extend(self.results.findings if self.results else ())
        return tuple(dict.fromkeys(findings))


def _repeats(match: Match, told: str) -> bool:
    """Whether it is a line of the job's log that only repeats one of `told`."""
    line = match.text.strip().removeprefix("why:").strip()
    return "/" not in match.file and bool(line) and line in told


@dataclass(frozen=True)
class Artifact:
    """One collected file as the manifest lists it; `present` says that it is there with this size."""

    path: str
    bytes: int
    sha256: str = ""
    node: str = ""
    source: str = ""
    present: bool = False


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint folder. `modified` is the newest file's time in seconds since the epoch."""

    path: str
    step: int
    files: tuple[str, ...] = ()
    bytes: int = 0
    modified: float = 0.0


@dataclass(frozen=True)
class SchedulerState:
    """The scheduler's last word about the job, as the launcher recorded it in `scheduler.json`.

    Of a run of others it stands in a line of a file (`jobspec.evidence.slurm_record`).
    """

    state: str = ""
    reason: str = ""
    exit_code: str = ""
    restarts: int = 0
    place: EvidenceItem = field(default_factory=lambda: EvidenceItem("scheduler.json"))


@dataclass(frozen=True)
class Baseline:
    """The metrics of a known-good run, and what it is called."""

    name: str
    metrics: Table


@dataclass(frozen=True)
class Evidence:
    """All evidence of a run directory. Paths below `root` are relative to it.

    `plan` is an empty Plan when `plan_read` is False: nothing can be judged then.
    `expected_files` maps each pattern of `plan.expect.files` to its matching files.
    `foreign` marks files of a run that jobspec did not launch: no command has a name, any log may hold
    anything, and only the user's options say what was planned.
    `job_matches` are the failures in the batch script's own log, which all attempts share.
    `dirty_files` maps each repository to its uncommitted files, as the patch lists them.
    """

    root: Path
    plan: Plan
    plan_read: bool = True
    plan_sha256: str = ""
    attempts: tuple[Attempt, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    manifest_read: bool = False
    checkpoints: tuple[Checkpoint, ...] = ()
    scheduler: SchedulerState = SchedulerState()
    expected_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problems: tuple[Finding, ...] = ()
    foreign: bool = False
    job_matches: tuple[Match, ...] = ()
    dirty_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    baseline: Baseline | None = None
    trackers: tuple[TrackerFiles, ...] = ()

    @property
    def run_id(self) -> str:
        return self.root.name

    @property
    def last(self) -> Attempt | None:
        """The attempt that decides: the last one that left anything."""
        return self.attempts[-1] if self.attempts else None

    @property
    def ran(self) -> Mapping[str, RanCode]:
        """Each repository as it was when the attempt that decides started."""
        return self.last.results.code if self.last is not None and self.last.results is not None else {}

    @cached_property
    def metrics(self) -> Table:
        """Metrics of the whole run; see `continue_tables` for what a requeued attempt replaces."""
        return continue_tables(attempt.metrics for attempt in self.attempts)

    @cached_property
    def lost(self) -> tuple[Lost, ...]:
        """Answers that failed without ending the run, as metrics and the logs of all attempts tell."""
        return (*in_metrics(self.metrics), *(lost for attempt in self.attempts for lost in attempt.lost))
