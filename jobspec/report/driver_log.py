"""The last lines of the log of the command that failed: what a traceback, a usage message or a crash left."""

from __future__ import annotations

import itertools
import math
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os.path import realpath
from pathlib import Path
from typing import BinaryIO

from jobspec.evidence.evidence import CommandResult, Evidence
from jobspec.finding import visible
from jobspec.log_text import bare, strip_ansi
from jobspec.runtime.base.run_files import open_file
from jobspec.triage.line_match import MAX_LINE_CHARS
from jobspec.triage.signatures import masked

MAX_LINES = 20
MAX_CHARS = 400  # of one line
TAIL_BYTES = 64 * 1024


@dataclass(frozen=True)
class DriverLog:
    """The end of a log; `file` is relative to the run directory, `ended` says how the command ended."""

    file: str
    command: str
    ended: str
    lines: tuple[str, ...]


def driver_log(evidence: Evidence) -> DriverLog | None:
    """The log of the command that failed first in the last attempt; None when none failed or has a log.

    The other ranks of a command are ended because one of them has failed.
    """
    last = evidence.last
    if last is None or last.results is None:
        return None
    failed = [item for item in last.results.commands if item.exit_code != 0 or item.signal]
    for command in sorted(failed, key=lambda item: item.end or math.inf):
        log = next((item for item in last.logs if command.log and item.path.endswith(command.log)), None)
        log = log or last.log(command.name)
        lines = _tail(evidence, log.path) if log is not None else ()
        if log is not None and lines:
            return DriverLog(log.path, command.name, how_it_ended(command), lines)
    return None


def how_it_ended(command: CommandResult) -> str:
    """`exit code 3`, `signal 11 (Segmentation fault)`."""
    if not command.signal:
        return "no end of its own" if command.exit_code is None else f"exit code {command.exit_code}"
    try:
        meaning = signal.strsignal(int(command.signal))
    except ValueError:
        meaning = None
    return f"signal {command.signal}" + (f" ({meaning})" if meaning else "")


def open_log(root: Path, file: str) -> BinaryIO:
    """A log of the run, to be read.

    Whoever sends a run folder could put a link to a file of its reader there, and ask for the report. Raises:
    OSError, also where the name leads out of the folder; ValueError where no file can have that name.
    """
    path = Path(realpath(root / file))  # unlike `resolve` without an error for links in a circle
    if not path.is_relative_to(realpath(root)):
        raise PermissionError(f"{file} leads out of the run folder")
    return open_file(path)


def shown_line(text: str) -> str:
    """A line of a log as a page may show it: without secrets, no longer than `MAX_CHARS`."""
    return visible(masked(strip_ansi(text[:MAX_LINE_CHARS])))[:MAX_CHARS]


def last_lines(root: Path, file: str) -> list[str]:
    """The last lines of a log as a page may show them, without empty ones. Raises: as `open_log` does.

    The first line that is read may have lost its start, and nobody knows the rest of a secret as one.
    """
    with open_log(root, file) as log:
        unread = max(0, log.seek(0, 2) - TAIL_BYTES)
        log.seek(unread)
        lines = log.read(TAIL_BYTES).decode("utf-8", "replace").splitlines()
    return [shown for line in lines[unread > 0 :] if (shown := shown_line(line).rstrip())]


def _tail(evidence: Evidence, path: str) -> tuple[str, ...]:
    try:
        return tuple(_folded(last_lines(evidence.root, path)))[-MAX_LINES:]
    except (OSError, ValueError):
        return ()


def _folded(lines: Iterable[str]) -> Iterator[str]:
    """The lines; of those that many ranks print alike, one after another, the first and their number."""
    for _, group in itertools.groupby(lines, key=bare):
        first, *more = group
        yield f"{first}  [and {len(more)} more alike]" if more else first
