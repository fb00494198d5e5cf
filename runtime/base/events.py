"""What the runtime writes down: events.jsonl, results.json, and one line a phase for people."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

from jobspec.finding import Finding
from jobspec.runtime.base.full_disk import refusal
from jobspec.runtime.base.redact import Redactor
from jobspec.runtime.base.safe_write import write_text

FORMAT_VERSION = 1


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def _say(text: str) -> None:
    """One line in the job's log; a closed one is no reason to end a run."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


class EventLog:
    """The event log of one attempt. Only the head node has one; threads may share it."""

    def __init__(self, path: Path, redactor: Redactor) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._lock = threading.Lock()
        self._redactor = redactor

    def emit(
        self,
        phase: str,
        event: str,
        *,
        node: str = "",
        outcome: str = "",
        seconds: Optional[float] = None,
        data: Optional[Mapping[str, Any]] = None,
        finding: Optional[Finding] = None,
    ) -> None:
        """Append one event: `event` is start, end, progress or finding (contract in docs/runtime.md)."""
        row: Dict[str, Any] = {
            "v": FORMAT_VERSION,
            "t": round(time.time(), 3),
            "phase": phase,
            "event": event,
            "node": node,
        }
        if outcome:
            row["outcome"] = outcome
        if seconds is not None:
            row["seconds"] = round(seconds, 3)
        if data:
            row["data"] = dict(data)
        if finding is not None:
            row["finding"] = finding.to_json()
        line = self._redactor.text(json.dumps(row, ensure_ascii=False)) + "\n"
        try:
            with self._lock:
                self._file.write(line.encode("utf-8", "surrogateescape"))
        except OSError as problem:  # the run goes on; what happened is in the job's log at least
            why = refusal(problem, self._file.name)[0]
            _say(f"jobspec: events.jsonl cannot be written: {why}: {line}")
        self._tell(phase, event, node, outcome, seconds, finding)

    def _tell(
        self,
        phase: str,
        event: str,
        node: str,
        outcome: str,
        seconds: Optional[float],
        finding: Optional[Finding],
    ) -> None:
        """Print phase ends and findings, and nothing else, to the job's log for people."""
        if finding is not None:
            text = self._redactor.text(finding.text())
        elif event == "end" and not node:
            text = f"jobspec: {phase} {outcome}" + ("" if seconds is None else f" ({seconds:.1f} s)")
        else:
            return
        _say(text)

    def close(self) -> None:
        self._file.close()
