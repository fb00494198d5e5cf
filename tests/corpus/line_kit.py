"""Lines of logs that tests put together, and the cause that is found in them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from jobspec.triage import Match, first_cause, scan_lines

BEGIN = datetime(2026, 3, 1, 10)
HOUR = 3600
LIMIT = "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT {} DUE TO TIME LIMIT ***"
CANCELLED = "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT {} ***"
PREEMPTED = "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2026-03-01T10:30:00 DUE TO PREEMPTION ***"
EXITED = "srun: error: n1: task 0: Exited with exit code 1"
DISK = "OSError: [Errno 28] No space left on device: '/ckpt/x'"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"


def at(seconds: float) -> str:
    return (BEGIN + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")


def end(line: str, seconds: float) -> str:
    return line.format(at(seconds).replace(" ", "T"))


def ray_starts(seconds: float) -> str:
    return f"{at(seconds)},020\tINFO worker.py:2013 -- Connecting to existing Ray cluster at: 10.0.0.11:6379"


def verl_steps(*numbers: int) -> list[str]:
    return [f"(TaskRunner pid=7) step:{n} - actor/loss:0.1 - training/global_step:{n}" for n in numbers]


def raised(file: str, function: str, line: str) -> list[str]:
    return [
        "Traceback (most recent call last):",
        f'  File "{file}", line 66, in {function}',
        "    x = y / z",
        line,
    ]


def cause_of(lines: Iterable[str]) -> Match | None:
    return first_cause(scan_lines(lines, "log"))


def shown(lines: Iterable[str]) -> tuple[str, int]:
    cause = cause_of(lines)
    return (cause.signature, cause.line) if cause is not None else ("", 0)
