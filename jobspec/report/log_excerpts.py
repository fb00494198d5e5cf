"""Parts of a failed run's logs for its page: around the line of the first cause, else the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from jobspec.evidence.evidence import Evidence
from jobspec.report.driver_log import last_lines, open_log, shown_line
from jobspec.verdict import Cause

MAX_LOGS = 12
AROUND = 40  # lines before and after the cause's
TAIL_LINES = 80
MAX_SEARCHED = 256 * 1024**2  # of a log, until the line of the cause


@dataclass(frozen=True)
class LogExcerpt:
    """Lines of one log; `at` is the place of the first cause among them, -1 where it is not there.

    `first` is the number of the first line, 0 where it is not known.
    """

    file: str
    lines: tuple[str, ...]
    first: int = 0
    at: int = -1


def log_excerpts(evidence: Evidence, cause: Cause | None) -> tuple[LogExcerpt, ...]:
    """Excerpts of the last attempt's logs, the one with the cause first; what cannot be read is left out."""
    return tuple(islice(_excerpts(evidence, cause), MAX_LOGS))


def _excerpts(evidence: Evidence, cause: Cause | None) -> Iterator[LogExcerpt]:
    logs = [log.path for log in evidence.last.logs] if evidence.last is not None else []
    if cause is not None and cause.line:
        logs.insert(0, cause.file)
    for file in dict.fromkeys(logs):
        around = cause.line if cause is not None and cause.file == file else 0
        try:
            excerpt = _around(evidence.root, file, around) if around else None
            excerpt = excerpt or LogExcerpt(file, tuple(last_lines(evidence.root, file)[-TAIL_LINES:]))
        except (OSError, ValueError):
            continue
        if excerpt.lines:
            yield excerpt


def _around(root: Path, file: str, line: int) -> LogExcerpt | None:
    with open_log(root, file) as log:
        first, read = max(1, line - AROUND), 0
        for _ in range(first - 1):
            read += len(log.readline(MAX_SEARCHED))
            if read >= MAX_SEARCHED:
                return None
        lines = tuple(_shown(log.readline(MAX_SEARCHED)) for _ in range(line + AROUND + 1 - first))
    while lines and not lines[-1]:
        lines = lines[:-1]
    return LogExcerpt(file, lines, first, line - first) if len(lines) > line - first else None


def _shown(line: bytes) -> str:
    return shown_line(line.decode("utf-8", "replace").rstrip())
