"""Show where runs are: state, step, reward and other figures, attempt, staging, the scheduler's reason.

Without RUN the list has the newest runs. A run named as RUN has more rows: one for each point, and one for
each node that stages. One query asks the scheduler about all runs, except those that have ended. A scheduler
that does not answer is told, and REASON has what the run's own files say; the exit code for a RUN is then 2.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from jobspec import pipeline
from jobspec.cli import output, parser
from jobspec.cli.boundary import USAGE
from jobspec.cli.live import observe
from jobspec.cli.live.metrics import Progress
from jobspec.cli.live.observe import View
from jobspec.cli.live.staging import StageProgress
from jobspec.finding import Finding, JobspecError
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import read_results
from jobspec.units import duration, figure


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument("runs_wanted", metavar="RUN", nargs="*", help="run id, prefix, directory, or last")
    into.add_argument(
        "--limit", type=parser.whole_number(1), default=20, metavar="N", help="at most N runs (default 20)"
    )
    into.add_argument("--all", action="store_true", help="all runs")
    parser.add_runs(into)
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    store = pipeline.store(args.runs)
    if args.runs_wanted:
        runs = [store.find(ref) for ref in args.runs_wanted]
    else:
        runs = store.list() if args.all else store.list()[: args.limit]
    unanswered: list[Finding] = []
    views = observe.observe(runs, unanswered)
    damaged = [finding for view in views for finding in view.damaged]
    if damaged and args.runs_wanted:
        raise JobspecError(*damaged)
    code = USAGE if unanswered and args.runs_wanted else 0  # what was asked for is known in part
    if args.json:
        output.print_json([as_json(view) for view in views])
        return code
    output.print_findings([*damaged, *unanswered])
    if not views:
        print("no runs in " + ", ".join(str(folder) for folder in store.folders))
        return 0
    rows = [_row(view) for view in views]
    if args.runs_wanted:
        rows = [row for view in views for row in (_row(view), *_nodes(view), *_points(view))]
    output.print_table(*_without_empty(_HEADER, rows))
    return code


_HEADER = (
    "RUN", "NAME", "CLUSTER", "JOB", "STATE", "STEP", "REWARD", "LOSS", "GRAD NORM", "TOKENS/S", "ATTEMPT",
    "AGE", "REASON",
)  # fmt: skip
_OPTIONAL = frozenset({"LOSS", "GRAD NORM", "TOKENS/S"})


def _row(view: View) -> tuple[str, ...]:
    launch, status = view.launch, view.status
    name = view.run.name + (f" ({view.points} points)" if view.points else "")
    if launch is None or status is None:
        state = "damaged" if view.damaged else "not started"
        return (view.run.run_id, name, "", "", state, *[""] * (len(_HEADER) - 5))
    waits = not view.final and not status.nodes and status.start
    return (
        view.run.run_id,
        name,
        launch.cluster,
        launch.job_id,
        status.state.value,
        *_progress(view.progress),
        str(status.restarts + 1),
        duration(max(0.0, time.time() - (launch.submit_time or launch.intent_time))),
        _reason(view, f", start expected {status.start}" if waits else ""),
    )


def _reason(view: View, more: str) -> str:
    """The scheduler's reason, and the progress of staging while nodes stage."""
    said = (view.status.reason if view.status else "") + more
    staged = f"staging: {view.stage.text()}" if view.stage and view.stage.text() else ""
    return "; ".join(words for words in (said, staged) if words)


def _progress(progress: Progress) -> tuple[str, ...]:
    """The columns from STEP to TOKENS/S."""
    figures = (progress.value, *(progress.figure(name) for name in ("loss", "grad norm", "tokens/s")))
    return (progress.text(), *("" if value is None else figure(value) for value in figures))


def _nodes(view: View) -> Iterator[tuple[str, ...]]:
    """The nodes that stage, one row each."""
    for node in view.stage.nodes if view.stage else ():
        reason = "; ".join(words for words in (node.text(), node.origin()) if words)
        yield ("", f"node {node.node}", "", "", "staging", *[""] * (len(_HEADER) - 6), reason)


def _points(view: View) -> Iterator[tuple[str, ...]]:
    """The points of a sweep, one row each."""
    for point in view.run.points():
        try:
            results = read_results(point) or {}
        except JobspecError:  # of one point; its report says more
            results = {"outcome": "damaged"}
        outcome = str(results.get("outcome") or "")
        progress = _progress(observe.progress(point))
        yield ("", f"point {point.root.name}", "", "", outcome, *progress, "", "", "")


def _without_empty(
    header: Sequence[str], rows: Sequence[tuple[str, ...]]
) -> tuple[list[str], list[list[str]]]:
    """The table without columns of figures that no run has."""
    kept = [at for at, name in enumerate(header) if name not in _OPTIONAL or any(row[at] for row in rows)]
    return [header[at] for at in kept], [[row[at] for at in kept] for row in rows]


def as_json(view: View) -> dict[str, Any]:
    """A run as `status --json` shows it; the names are stable."""
    launch, progress = view.launch, view.progress
    return {
        "run_id": view.run.run_id,
        "name": view.run.name,
        "run_dir": str(view.run.root),
        "cluster": launch.cluster if launch else "",
        "launcher": launch.launcher if launch else "",
        "job_id": launch.job_id if launch else "",
        "submit_time": launch.submit_time if launch else None,
        "state": view.status.state.value if view.status else "",
        "final": view.final,
        "step": progress.step,
        "steps": progress.steps,
        "metric": progress.metric,
        "value": progress.value,
        "figures": dict(progress.figures),
        "stage": _stage_json(view.stage) if view.stage else None,
        "points": view.points,
        "point_progress": [_point_json(point) for point in view.run.points()],
        "damaged": [finding.to_json() for finding in view.damaged],
        "scheduler": view.status.to_json() if view.status else None,
    }


def _stage_json(stage: StageProgress) -> dict[str, Any]:
    return {"share": round(stage.share, 4), **asdict(stage)}


def _point_json(point: RunPaths) -> dict[str, Any]:
    progress = observe.progress(point)
    return {
        "point": int(point.root.name),
        "step": progress.step,
        "steps": progress.steps,
        "metric": progress.metric,
        "value": progress.value,
        "figures": dict(progress.figures),
    }
