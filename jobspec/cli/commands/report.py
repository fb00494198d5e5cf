"""Print the verdict of a run from its evidence files, and write every form of the report beside them.

The report of a sweep is the table of its points, with settings, speed, status and the best point. Only this
table has the formats `csv` and `jsonl`; its `html` has a plot.

The points of `coverage.levels` are one validation and told as one summary; `md`, `json` and `html` are the
table. Several runs of one framework, such as the levels of one validation, give one summary by
`--format summary`. Its result is the worst, and each level has its line.

A scheduler that does not answer is told; the verdict then stands on the run's files alone.

The exit code is the verdict: 0 Pass, 1 Fail, 3 Blocked, 4 nothing ran.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from jobspec import launchers
from jobspec.cli import output, parser
from jobspec.cli.live import conclude, observe, reports
from jobspec.finding import Finding, JobspecError, visible
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import read_launch
from jobspec.runs.store import open_store

RUN_FORMATS = ("text", "summary", "md", "json", "html", "junit")
FORMATS = (*RUN_FORMATS, *conclude.SWEEP_ONLY)


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument(
        "run",
        metavar="RUN",
        nargs="*",
        default=["last"],
        help="run id, prefix, name, directory, or last (default); several with --format summary",
    )
    parser.add_runs(into)
    parser.add_baseline(into)
    into.add_argument(
        "--best",
        metavar="RULE",
        help="of a sweep: the best point by a metric, such as `last(reward)` or `lowest last(loss)`",
    )
    into.add_argument("--format", choices=FORMATS, default="text", help="what is printed (default text)")
    into.add_argument(
        "--in-job",
        action="store_true",
        help="the job's own last step: write the reports of RUN's files, ask no scheduler, print no report",
    )
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    store, fmt = open_store(args.runs), "json" if args.json else args.format
    runs = [store.find(name) for name in args.run]
    if args.in_job:
        for run_paths in runs:
            print(f"{run_paths.ref}: {reports.write_in_job(run_paths)}")
        return 0
    for run_paths in runs:
        _settle(run_paths)
    baseline = Path(args.baseline) if args.baseline else None
    if baseline is not None and not baseline.exists():
        baseline = store.find(args.baseline).root
    rule = None
    if args.best is not None:
        from jobspec.sweeps.best import parse_rule

        rule = parse_rule(args.best)
    if len(runs) > 1:
        return conclude.conclude_together(runs, fmt, baseline)
    return conclude.conclude(runs[0], fmt, show_tail=False, baseline=baseline, rule=rule)


def _settle(run_paths: RunPaths) -> None:
    """Ask the scheduler how the job ended, where that is not recorded yet."""
    launch = read_launch(run_paths)
    if launch is None:
        return
    unanswered: list[Finding] = []
    status = observe.observe([run_paths], unanswered)[0].status
    if unanswered:
        what = f"{unanswered[0].what}: the verdict stands on the run's files alone, without how the job ended"
        print(f"{visible(what)}; `jobspec report {run_paths.ref}` asks again", file=sys.stderr)
        return
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
