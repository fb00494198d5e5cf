"""Print the verdict of a run from its evidence files, and write every form of the report beside them.

Of a sweep the table of its points: what each set, how fast it was, its status, and the best one (also as
`csv` and `jsonl`; `html` has a plot).

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
    found = pipeline.store(args.runs).find(args.run)
    _settle(found)
    return conclude.conclude(found, "json" if args.json else args.format, show_tail=False)


def _settle(found: RunPaths) -> None:
    """Ask the scheduler how the job ended, where that is not recorded yet."""
    launch = read_launch(found)
    if launch is None:
        return
    status = observe.observe([found])[0].status
    if status is not None and not status.state.final:
        told = f"run {found.ref} is {status.state.value}: the verdict is of what it has written so far"
        print(told, file=sys.stderr)
        return
    newest = found.attempts()[-1:]
    if newest and not (found.attempt(newest[0]) / "results.json").is_file():
        # Who saw the job end and wrote it down may have looked before the last file was there.
        try:
            launchers.sync(launch)
        except JobspecError as problem:
            output.print_findings(problem.findings)
