"""What the head and the batch script leave for each other in files, since no channel joins them.

attempts/<n>/signal                 the script's: the signals that it got, a line each (`Attempt` reads them)
attempts/<n>/steps                  the script's: how many steps a held run's job has (`held`)
attempts/<n>/exit                   the head's: its exit code, then the nodes that it lost
<node_local>/exit-<job>.<n>-<run>   the same, where the run's folder cannot be written
attempts/<n>/requeue                the head's: nodes to leave out where another attempt is worth it; with
                                    `only` behind them it is only where Slurm can start the job without them
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Iterator, Optional, Sequence, Tuple

from jobspec.finding import Finding, warning
from jobspec.runtime.base.safe_write import write_text
from jobspec.runtime.head.attempt import Attempt
from jobspec.runtime.head.broken_nodes import broken_nodes, left_out
from jobspec.runtime.head.record import Cause

ANY_NODE = "any"  # in `requeue`: no node is to be left out
SAMPLES = "gpu-"  # of the runtime's own sampler: they say nothing of the command's progress


def leave_exit(attempt: Attempt, code: int, lost: Sequence[str] = ()) -> None:
    """Leave the code that the job ends with when srun waits for a dead node; at once with nodes `lost`."""
    text = " ".join((str(code), *lost)) + "\n"
    places = [attempt.node.paths.attempt / "exit"]
    if attempt.who.job_id:
        name = f"exit-{attempt.who.job_id}.{attempt.who.attempt}-{attempt.who.run_dir.name}"
        places.append(Path(attempt.plan.node_local, name))  # a job may have several runs (`--here`)
    for place in places:
        try:
            write_text(place, text)
            return
        except OSError as problem:
            sys.stderr.write(f"jobspec: {attempt.who.name}: `{place}`: {problem.strerror}\n")


def ask_for_another_attempt(attempt: Attempt, lost: Sequence[str]) -> None:
    """After a loss of nodes or a stall, where this attempt has got on: else the next would end there too.

    Without nodes that evidence names as broken the next one goes another way, however far this one came.
    """
    if not attempt.plan.slurm.requeue_max:
        return
    broken = [] if lost and ANY_NODE not in lost else broken_nodes(attempt)
    without, only = ",".join(one.node for one in broken) or ",".join(lost), ""
    if not without:
        return
    if not _has_got_on(attempt):
        if not broken:
            attempt.record.find("collect", _not_requeued())
            return
        only = " only"
    if attempt.who.restarts < attempt.plan.slurm.requeue_max:  # else the script tells that this was the last
        for one in broken:
            attempt.record.find("collect", left_out(one))
    with contextlib.suppress(OSError):
        write_text(attempt.node.paths.attempt / "requeue", f"{without}{only}\n")


def stalled_nodes(cause: Optional[Cause]) -> Tuple[str, ...]:
    """Of a stall after which another attempt is asked for: the node that it names, or any."""
    if cause is None or not cause.again:
        return ()
    nodes = {finding.node for finding in cause.findings if finding.rule == "stall.outside" and finding.node}
    return tuple(sorted(nodes)) or (ANY_NODE,)


def lost_nodes(cause: Optional[Cause]) -> Tuple[str, ...]:
    findings = cause.findings if cause is not None else ()
    return tuple(sorted({finding.node for finding in findings if finding.rule == "node.lost"}))


def _has_got_on(attempt: Attempt) -> bool:
    """Whether a checkpoint or a metric was written since the attempt began, by the clock of that storage."""
    paths = attempt.node.paths
    with contextlib.suppress(OSError):
        began = (paths.attempt / "canary" / "head").stat().st_mtime
        return any(_written(paths.metrics, began)) or any(_written(Path(paths.checkpoint), began))
    return False


def _written(folder: Path, since: float) -> Iterator[bool]:
    for root, _, names in os.walk(folder):
        for path in (Path(root, name) for name in names if not name.startswith(SAMPLES)):
            with contextlib.suppress(OSError):
                found = path.stat()
                yield bool(found.st_size) and found.st_mtime > since


def _not_requeued() -> Finding:
    return warning(
        "requeue.no-progress",
        "the job is not requeued: this attempt has saved no checkpoint and written no metric",
        "the next attempt would begin where this one did",
        "submit again, or save a checkpoint earlier",
    )
