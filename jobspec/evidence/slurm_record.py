"""Slurm's own word about a job, where people keep it beside a run: what sacct, scontrol and seff print.

Sources: sacct(1) and scontrol(1) of Slurm 22.05 to 24.11, "JOB STATE CODES"; Slurm's `contribs/seff`. sacct
cuts a word that is wider than its column, and ends it with `+`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from jobspec.evidence.evidence import SchedulerState
from jobspec.log_text import clean
from jobspec.verdict import EvidenceItem

MAX_BYTES = 256 * 1024  # such a file is small; a log is not read for it
ENDS = (
    "COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "NODE_FAIL", "PREEMPTED", "DEADLINE",
    "BOOT_FAIL", "REVOKED",
)  # fmt: skip
HEAD = re.compile(r"^\W*JobID(?:Raw)?\b.*\bState\b|^\W*(?:\w+\W+)*State\b.*\bJobID(?:Raw)?\b", re.IGNORECASE)
ROW = re.compile(r"(?:^|[\s|,])(\d{1,12}(?:_\d+)?)(\.\w+)?\+?(?=[\s|,])")
WORD = re.compile(r"(?<![\w.])([A-Z_]{5,13})(\+?)(?![\w.])")
CODE = re.compile(r"(?<![\d:.-])(\d{1,3}):(\d{1,3})(?![\d:.])")
SHOWN = re.compile(r"^\s*JobState=(\w+)(?:\s+Reason=(\S+))?")
SHOWN_ID, SHOWN_CODE = re.compile(r"^\s*JobId=(\d+)"), re.compile(r"\bExitCode=(\d{1,3}):(\d{1,3})")
SEFF_ID = re.compile(r"^Job ID: (\d+)")
SEFF = re.compile(r"^State: (\w+) \(exit code (\d{1,3})\)")
MEMORY = "OUT_OF_MEMORY"


@dataclass(frozen=True)
class SlurmEnd:
    """How Slurm saw a job end. `code` is its exit code, of a signal 128 and its number; the line says it."""

    job: str
    state: str
    code: int
    item: EvidenceItem
    reason: str = ""


def last_word(end: SlurmEnd | None) -> SchedulerState:
    """The same as the scheduler's state of the evidence."""
    return (
        SchedulerState() if end is None else SchedulerState(end.state, end.reason, str(end.code), 0, end.item)
    )


def slurm_end(logs: Iterable[tuple[Path, str]], trained: Iterable[str]) -> SlurmEnd | None:
    """The record of the run's job: the one whose number the name of a `trained` log has, else the last.

    `logs` are (path, name). None where no file holds one, or none has ended.
    """
    ends = [end for path, name in logs for end in _ends(path, name)]
    names = " ".join(trained)
    own = [end for end in ends if re.search(rf"(?<!\d){end.job}(?!\d)", names)]
    found = own or ends
    return found[-1] if found else None


def is_record(line: str) -> bool:
    """Whether a line is such a record: of the job, it tells nothing of what its programs did."""
    row = ROW.match(line.strip())
    return bool((row and _state(line)) or SHOWN.match(line) or SEFF.match(line))


def _ends(path: Path, name: str) -> Iterator[SlurmEnd]:
    lines: list[str] = []
    with suppress(OSError):
        if path.stat().st_size <= MAX_BYTES:
            lines = [clean(line) for line in path.read_text("utf-8", "replace").split("\n")]
    jobs: dict[str, SlurmEnd] = {}
    table, job = False, ""
    for number, line in enumerate(lines, 1):
        item = EvidenceItem(name, number, line.strip()[:300])
        table = table or bool(HEAD.search(line))
        if found := SHOWN_ID.match(line) or SEFF_ID.match(line):
            job = found[1]
        elif found := SEFF.match(line) or SHOWN.match(line):
            code, reason = (int(found[2]), "") if found.re is SEFF else (0, found[2] or "")
            _note(jobs, SlurmEnd(job, _word(found[1]), code, item, reason))
        elif table and (row := ROW.search(line)) and (word := _state(line)):
            code = next(map(_code, CODE.finditer(line)), 0)
            _row(jobs, SlurmEnd(row[1], word, code, item), step=bool(row[2]))
        if job in jobs and (found := SHOWN_CODE.search(line)):
            jobs[job] = replace(jobs[job], code=_code(found))
    yield from jobs.values()


def _row(jobs: dict[str, SlurmEnd], end: SlurmEnd, step: bool) -> None:
    """A line of sacct. A step tells nothing of its job, but that memory ran out where the job only failed."""
    if not step:
        _note(jobs, end)
    elif end.state == MEMORY and end.job in jobs and jobs[end.job].state == "FAILED":
        jobs[end.job] = end


def _note(jobs: dict[str, SlurmEnd], end: SlurmEnd) -> None:
    """The last word about a job counts: it may have been started again."""
    if end.state:
        jobs[end.job] = end
    else:
        jobs.pop(end.job, None)


def _state(line: str) -> str:
    """The state in a line of sacct; a job that runs or waits has ended in none."""
    words = (_word(found[1], found[2] == "+") for found in WORD.finditer(line))
    return next(filter(None, words), "")


def _word(text: str, cut: bool = False) -> str:
    return next((word for word in ENDS if word == text or (cut and word.startswith(text))), "")


def _code(found: re.Match[str]) -> int:
    code, signal = int(found[1]), int(found[2])
    return code or (128 + signal if 0 < signal < 65 else signal)  # 0:125 is Slurm's own, for memory
