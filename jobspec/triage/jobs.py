"""Attempts in several logs: jobs and tries that followed one another, by their times or their logs' names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from jobspec.triage.attempts import Attempt
from jobspec.triage.match import Match
from jobspec.triage.signatures import NOTE


class Part(NamedTuple):
    """One attempt of one log."""

    file: str
    attempt: Attempt
    matches: list[Match]


Logs = Sequence[Sequence[Part]]
# Ends of a whole job by the scheduler, after which another job follows.
OUTSIDE = frozenset({"preempted", "time-limit", "node", "cancelled"})
JOB_ENDED = re.compile(r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED .*DUE TO|\*\*\* JOB \d+ ON \S+ CANCELLED")
TRY = re.compile(r"(?i)(?<![a-z])(?P<of>attempt|try|restart|requeue|slurm|job)[-_.]?(?P<number>\d+)(?!.*\d)")
TELLS_ORDER = ("attempt", "try", "restart", "requeue")


def jobs_of(logs: Logs) -> list[Logs]:
    """The logs of each job in turn. A later one began after all that an earlier one said, whose job the
    scheduler had ended, or whose logs' names differ from its own in the number of the try alone."""
    timed = sorted(
        ((parts[0].attempt.begun, parts) for parts in logs if parts[0].attempt.begun is not None),
        key=lambda item: item[0],
    )
    jobs, last, until = list[Logs](), list[Sequence[Part]](), 0.0
    for begun, parts in timed:
        if last and begun > until and (_ended_outside(last) or _next_try(last, parts)):
            jobs.append(last)
            last, until = [], 0.0
        last.append(parts)
        until = max(until, *map(_until, parts))
    return [*jobs, *_by_number([*last, *(parts for parts in logs if parts[0].attempt.begun is None)])]


def _by_number(logs: Logs) -> list[Logs]:
    """The logs of each try in turn, where names differ in the number of the try alone and not all logs tell
    times. A number of a job tells it only after jobs that the scheduler ended."""
    if all(parts[0].attempt.begun is not None for parts in logs):
        return [logs]
    tries, others, sure = dict[int, list[Sequence[Part]]](), list[Sequence[Part]](), True
    for parts in logs:
        found = TRY.search(parts[-1].file)
        sure = sure and (found is None or found["of"].lower() in TELLS_ORDER)
        (others if found is None else tries.setdefault(int(found["number"]), [])).append(parts)
    *before, last = [tries[number] for number in sorted(tries)] or [others]
    named = all(_next_try(one, parts) for one in before for parts in last)
    ended = sure or all(map(_ended_outside, before))
    if before and named and ended and any(lives(parts[-1]) for parts in last):
        return [*before, [*last, *others]]
    return [logs]


def _until(part: Part) -> float:
    """The last time that the attempt tells."""
    times = [part.attempt.begun, part.attempt.work.until, *(match.time for match in part.matches)]
    return max((time for time in times if time is not None), default=0.0)


def _ended_outside(logs: Logs) -> bool:
    return any(
        match.kind in OUTSIDE and JOB_ENDED.search(match.text) is not None
        for parts in logs
        for match in parts[-1].matches
    )


def _next_try(before: Logs, later: Sequence[Part]) -> bool:
    name = TRY.sub("", later[-1].file)
    return name != later[-1].file and any(TRY.sub("", parts[-1].file) == name for parts in before)


def attempts_of(jobs: Sequence[Logs]) -> list[list[Part]]:
    """The attempts of jobs that ended before: of each, the last ones of all its logs together."""
    return [
        [parts[at] for parts in logs if -at <= len(parts)]
        for logs in jobs
        for at in range(-max(map(len, logs)), 0)
    ]


def lives(part: Part) -> bool:
    """Whether the attempt worked or failed."""
    failed = any(match.verdict != NOTE and not match.wrapper for match in part.matches)
    return failed or part.attempt.work.last is not None
