"""Show where runs are: state, step, reward, attempt and the reason of the scheduler.

Without RUN the newest runs. The scheduler is asked once for all of them, and not at all about runs that
have ended.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from jobspec.cli import observe, output, parser, pipeline
from jobspec.cli.observe import View
from jobspec.finding import JobspecError


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument("runs_wanted", metavar="RUN", nargs="*", help="run id, prefix, directory, or last")
    into.add_argument("--limit", type=int, default=20, metavar="N", help="at most N runs (default 20)")
    into.add_argument("--all", action="store_true", help="all runs")
    parser.add_runs(into)
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    store = pipeline.store(args)
    if args.runs_wanted:
        runs = [store.find(ref) for ref in args.runs_wanted]
    else:
        runs = store.list() if args.all else store.list()[: max(args.limit, 0)]
    views = observe.observe(runs)
    damaged = [finding for view in views for finding in view.damaged]
    if damaged and args.runs_wanted:
        raise JobspecError(*damaged)
    if args.json:
        output.print_json([as_json(view) for view in views])
        return 0
    output.print_findings(damaged)
    if not views:
        print("no runs in " + ", ".join(str(folder) for folder in store.folders))
        return 0
    output.print_table(_HEADER, [_row(view) for view in views])
    return 0


_HEADER = ("RUN", "NAME", "CLUSTER", "JOB", "STATE", "STEP", "REWARD", "ATTEMPT", "AGE", "REASON")


def _row(view: View) -> tuple[str, ...]:
    launch, status, progress = view.launch, view.status, view.progress
    value = progress.value
    name = view.run.root.parent.name + (f" ({view.points} points)" if view.points else "")
    if launch is None or status is None:
        state = "damaged" if view.damaged else "not started"
        return (view.run.run_id, name, "", "", state, "", "", "", "", "")
    return (
        view.run.run_id,
        name,
        launch.cluster,
        launch.job_id,
        status.state.value,
        progress.text(),
        f"{value:.4g}" if value is not None else "",
        str(status.restarts + 1),
        output.duration(max(0.0, time.time() - (launch.submit_time or launch.intent_time))),
        status.reason
        + (
            f", start expected {status.start}" if not view.final and not status.nodes and status.start else ""
        ),
    )


def as_json(view: View) -> dict[str, Any]:
    """A run as `status --json` shows it; the names are stable."""
    launch, progress = view.launch, view.progress
    return {
        "run_id": view.run.run_id,
        "name": view.run.root.parent.name,
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
        "points": view.points,
        "damaged": [finding.to_json() for finding in view.damaged],
        "scheduler": view.status.to_json() if view.status else None,
    }
