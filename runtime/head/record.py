"""What the head remembers of an attempt while it runs, and how that becomes results.json. No waiting here."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from jobspec.finding import Finding, warning
from jobspec.runtime.base.events import FORMAT_VERSION, EventLog, write_json
from jobspec.runtime.base.redact import Redactor

OK, FAILED, BLOCKED, CANCELLED, TIMEOUT = "ok", "failed", "blocked", "cancelled", "timeout"
EXIT_BLOCKED = 3
EXIT_TIMEOUT = 124  # as timeout(1)


@dataclass(frozen=True)
class Cause:
    """Why the run ends before its commands have. The first one counts."""

    outcome: str
    exit_code: int
    phase: str
    findings: Sequence[Finding] = ()
    again: bool = False  # another attempt is asked for, without the node that a finding names


def blocked(phase: str, *findings: Finding) -> Cause:
    return Cause(BLOCKED, EXIT_BLOCKED, phase, findings)


def by_signal(number: int, reached: str = "the run") -> Cause:
    """SIGUSR1 is the batch script's warning before the time limit; other signals cancel."""
    if number == signal.SIGUSR1:
        return Cause(TIMEOUT, EXIT_TIMEOUT, "")
    name = signal.Signals(number).name
    why = "somebody cancelled the run, or the site warns its jobs so"
    return Cause(CANCELLED, 128 + number, "", (warning("run.signal", f"{name} reached {reached}", why),))


@dataclass
class PhaseTimes:
    """One run-level phase."""

    phase: str
    start: float
    end: float = 0.0
    outcome: str = ""

    def to_json(self) -> Dict[str, Any]:
        return {"phase": self.phase, "outcome": self.outcome, "start": self.start, "end": self.end}


@dataclass
class Record:
    """The evidence of one attempt. Threads share it."""

    attempt: int
    attempt_dir: Path
    log: EventLog
    redactor: Redactor
    phases: List[PhaseTimes] = field(default_factory=list)
    findings: List[Finding] = field(default_factory=list)
    commands: List[Dict[str, Any]] = field(default_factory=list)
    services: Dict[Tuple[str, str], Dict[str, Any]] = field(default_factory=dict)  # by name and node
    nodes: List[Dict[str, Any]] = field(default_factory=list)
    imports: Dict[str, Dict[str, str]] = field(default_factory=dict)
    code: Dict[str, Any] = field(default_factory=dict)
    collected: Dict[str, Any] = field(default_factory=lambda: {"files": 0, "bytes": 0, "truncated": False})
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, phase: str) -> PhaseTimes:
        times = PhaseTimes(phase, time.time())
        with self._lock:
            self.phases.append(times)
        self.log.emit(phase, "start")
        return times

    def end(self, times: PhaseTimes, outcome: str, data: Optional[Mapping[str, Any]] = None) -> None:
        if times.outcome:
            return
        times.end, times.outcome = time.time(), outcome
        self.log.emit(times.phase, "end", outcome=outcome, seconds=times.end - times.start, data=data)

    def end_open(self, outcome: str) -> None:
        """Close the phases that a cause cut short."""
        for times in self.phases:
            self.end(times, outcome)

    def skip(self, phase: str) -> None:
        self.end(self.begin(phase), "skipped")

    def find(self, phase: str, finding: Finding) -> None:
        """Note a finding once; the event names the node that it was made on."""
        with self._lock:
            if finding in self.findings:
                return
            self.findings.append(finding)
        self.log.emit(phase, "finding", node=finding.node, finding=finding)

    def write(self, cause: Optional[Cause], collecting: bool = False) -> int:
        """Write results.json; the exit code that it states. Findings of the cause come first.

        `collecting` marks a first version: who finds it later knows that the head did not come to the end.
        """
        outcome, code = (OK, 0) if cause is None else (cause.outcome, cause.exit_code)
        first = [finding for finding in (cause.findings if cause else ()) if finding in self.findings]
        ordered = [*first, *(finding for finding in self.findings if finding not in first)]
        data = {
            "v": FORMAT_VERSION,
            "attempt": self.attempt,
            "outcome": outcome,
            "exit_code": code,
            "first_phase_failed": cause.phase if cause else "",
            "findings": [self._clean(finding.to_json()) for finding in ordered],
            "phases": [times.to_json() for times in self.phases],
            "commands": self.commands,
            "services": list(self.services.values()),
            "nodes": self.nodes,
            "code": self.code,
            "imports": self.imports,
            "collect": self.collected,
        }
        if collecting:
            data["collecting"] = True
        write_json(self.attempt_dir / "results.json", data)
        return code

    def _clean(self, row: Mapping[str, Any]) -> Dict[str, Any]:
        return {
            key: self.redactor.text(value) if isinstance(value, str) else value for key, value in row.items()
        }
