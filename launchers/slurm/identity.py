"""Which rows of Slurm's answers are a launch's own. Pure but for the owner of the run's folder.

Slurm uses an id again after its largest one, and a job's name can change: `scontrol update JobName=` and a
`job_submit` plugin do so. The name has the run's id and is proof; without it the job's owner and the time of
its submission decide.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from pwd import getpwuid

from jobspec.launchers.base import JobStatus
from jobspec.launchers.slurm import commands
from jobspec.launchers.slurm.commands import JobRow
from jobspec.runs.records import Launch

# Clocks differ and a busy controller is slow; no id comes again within hours. Slurm tells local times, and a
# login node elsewhere may have those of any time zone.
SLACK_S, FAR_SLACK_S = 2 * 3600.0, 28 * 3600.0
_NAMELESS = ("", "allocation")  # for some seconds slurmdbd may know a job by these


Tasks = dict[int | None, JobStatus]
Rows = list[JobRow]


class Relation(Enum):
    """What a row of the launch's id under another name is."""

    OURS = "submitted by its owner when the launch was"
    MAYBE = "its owner's, submitted later: a requeue does that, and so does a new job"
    OTHER = "somebody else's, or older than the launch"


def _own_names(launch: Launch, rows: Sequence[JobRow]) -> frozenset[str]:
    """The names under which `rows`, all of the launch's id, are its job's."""
    others = {row.job_name for row in rows if row.job_name != launch.job_name}
    if not others:
        return frozenset((launch.job_name,))
    user = _user(launch)
    ours = {row.job_name for row in rows if _relation(launch, row, user) is Relation.OURS}
    return frozenset((launch.job_name, *ours))


def own_tasks(
    launch: Launch, queued: Mapping[str, Rows], accounted: Mapping[str, Rows]
) -> tuple[Tasks, Tasks]:
    """The job's tasks as the queue and as accounting have them."""
    in_queue, in_records = queued.get(launch.job_id, []), accounted.get(launch.job_id, [])
    names = _own_names(launch, [*in_queue, *in_records])
    choices = (_tasks(in_records, known) for known in (names, *({name} for name in _NAMELESS)))
    return _tasks(in_queue, names), next(filter(None, choices), {})


def _tasks(rows: Rows, names: Container[str]) -> Tasks:
    own = commands.latest([row for row in rows if row.job_name in names])
    return {task: status for (_, task), status in own.items()}


def renamed(
    launch: Launch, queued: Mapping[str, Rows], accounted: Mapping[str, Rows]
) -> tuple[Relation | None, str]:
    """What the likeliest row of the id under another name is, and its sentence; None without any."""
    rows = queued.get(launch.job_id) or accounted.get(launch.job_id, [])
    others = [row for row in rows if row.job_name not in {launch.job_name, *_NAMELESS}]
    user = _user(launch) if others else ""
    found = [(_relation(launch, row, user), row) for row in others]
    found.sort(key=lambda pair: pair[0] is Relation.OTHER)
    return next(((how, _described(row)) for how, row in found), (None, ""))


def doubt(launch: Launch, queued: Mapping[str, Rows], accounted: Mapping[str, Rows]) -> str:
    """Why the job that has the id now may be another one; empty for the launch's own, and for none."""
    return "" if own_tasks(launch, queued, accounted)[0] else renamed(launch, queued, {})[1]


def is_live(launch: Launch, queued: Mapping[str, Rows]) -> bool:
    """True when the queue alone says all there is to say: nothing of the job has ended or is missing."""
    tasks = own_tasks(launch, queued, {})[0]
    if not tasks or any(status.state.final for status in tasks.values()):
        return False
    return not launch.array or len(tasks) == sum(1 for _ in commands.expand_ranges(launch.array))


def by_job(rows: Sequence[JobRow]) -> dict[str, Rows]:
    groups: dict[str, Rows] = {}
    for row in rows:
        groups.setdefault(row.job_id, []).append(row)
    return groups


def _relation(launch: Launch, row: JobRow, user: str) -> Relation:
    if user and row.user and row.user != user:
        return Relation.OTHER
    submitted = _seconds(row.submitted)
    if submitted is None:
        return Relation.MAYBE
    slack = SLACK_S if launch.login == "here" else FAR_SLACK_S
    if submitted < launch.intent_time - slack:
        return Relation.OTHER
    last = max(launch.intent_time, launch.submit_time) + slack
    return Relation.OURS if submitted <= last else Relation.MAYBE


def _described(row: JobRow) -> str:
    """The sentence about an id whose row has another name."""
    more = [f"of {row.user}"] if row.user else []
    more += [f"submitted {row.submitted}"] if row.submitted else []
    return f"id {row.job_id} now has the name `{row.job_name}`" + (f" ({', '.join(more)})" if more else "")


def _user(launch: Launch) -> str:
    """Who submitted the launch, by the cluster's name for them; empty where nobody knows."""
    if launch.user or launch.login != "here":
        return launch.user
    with contextlib.suppress(OSError, KeyError):
        return getpwuid(Path(launch.root or launch.run_dir).stat().st_uid).pw_name
    return ""


def _seconds(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
