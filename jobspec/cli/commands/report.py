"""Print the verdict of a run from its evidence files, and write every form of the report beside them.

The report of a sweep is the table of its points, with settings, speed, status and the best point. Only this
table has the formats `csv` and `jsonl`; its `html` has a plot.

The exit code is the verdict: 0 Pass, 1 Fail, 3 Blocked, 4 nothing ran.
"""

from __future__ import annotations

import argparse
import sys

from jobspec import launchers, pipeline
from jobspec.cli import output, parser
from jobspec.cli.live import conclude, observe
from jobspec.finding import JobspecError
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import read_launch

RUN_FORMATS = ("text", "summary", "md", "json", "html", "junit")
FORMATS = (*RUN_FORMATS, *conclude.SWEEP_ONLY)


def add_arguments(into: argparse.ArgumentParser) -> None:
    parser.add_run(into)
    into.add_argument("--format", choices=FORMATS, default="text", help="what is printed (default text)")
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    run_paths = pipeline.store(args.runs).find(args.run)
    _settle(run_paths)
    return conclude.conclude(run_paths, "json" if args.json else args.format, show_tail=False)


def _settle(run_paths: RunPaths) -> None:
    """Ask the scheduler how the job ended, where that is not recorded yet."""
    launch = read_launch(run_paths)
    if launch is None:
        return
    status = observe.observe([run_paths])[0].status
    if status is not None and not status.state.final:
        message = f"run {run_paths.ref} is {status.state.value}: the verdict covers its files so far"
        print(message, file=sys.stderr)
        return
    newest = run_paths.attempts()[-1:]
    if newest and not (run_paths.attempt(newest[0]) / "results.json").is_file():
        # An earlier call may have recorded the end of the job before the last file arrived.
        try:
            launchers.sync(launch)
        except JobspecError as problem:
            output.print_findings(problem.findings)
