"""Which rows of Slurm's answers are a launch's own. Pure but for the owner of the run's folder.

Slurm uses an id again after its largest one, and a job's name can change: `scontrol update JobName=` and a
`job_submit` plugin do so. The name has the run's id and is proof; without it the job's owner and the time of
its submission decide.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from pwd import getpwuid

from jobspec.launchers.slurm.commands import JobRow
from jobspec.runs.records import Launch

# Clocks differ and a busy controller is slow; no id comes again within hours. Slurm tells local times, and a
# login node elsewhere may have those of any time zone.
SLACK_S, FAR_SLACK_S = 2 * 3600.0, 28 * 3600.0


class Relation(Enum):
    """What a row of the launch's id under another name is."""

    OURS = "submitted by its owner when the launch was"
    MAYBE = "its owner's, submitted later: a requeue does that, and so does a new job"
    OTHER = "somebody else's, or older than the launch"


def own_names(launch: Launch, rows: Sequence[JobRow]) -> frozenset[str]:
    """The names under which `rows`, all of the launch's id, are its job's."""
    others = {row.job_name for row in rows if row.job_name != launch.job_name}
    if not others:
        return frozenset((launch.job_name,))
    user = _user(launch)
    ours = {row.job_name for row in rows if relation(launch, row, user) is Relation.OURS}
    return frozenset((launch.job_name, *ours))


def strangers(launch: Launch, rows: Iterable[JobRow]) -> list[tuple[Relation, JobRow]]:
    """The rows of `rows`, none of which is proved to be the launch's, that are most likely its own first."""
    user = _user(launch)
    found = [(relation(launch, row, user), row) for row in rows]
    return sorted(found, key=lambda pair: pair[0] is Relation.OTHER)


def relation(launch: Launch, row: JobRow, user: str) -> Relation:
    if user and row.user and row.user != user:
        return Relation.OTHER
    submitted = _seconds(row.submitted)
    if submitted is None:
        return Relation.MAYBE
    slack = SLACK_S if launch.login == "here" else FAR_SLACK_S
    if submitted < launch.intent_time - slack:
        return Relation.OTHER
    return (
        Relation.OURS if submitted <= max(launch.intent_time, launch.submit_time) + slack else Relation.MAYBE
    )


def described(row: JobRow) -> str:
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
