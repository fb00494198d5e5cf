"""Judge the files of a run that jobspec did not launch: logs, metrics and checkpoints at PATH, as found.

The exit code is the verdict: 0 Pass, 1 Fail, 3 Blocked, 4 nothing ran.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from jobspec.cli import parser
from jobspec.cli.commands.report import RUN_FORMATS
from jobspec.cli.live import conclude


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument("path", metavar="PATH", help="folder with the run's files, or one file")
    into.add_argument(
        "--framework", metavar="NAME", help="what ran; see `framework list` (default: what the files say)"
    )
    into.add_argument("--level", metavar="LEVEL", help="coverage level (default: the framework's first)")
    into.add_argument(
        "--variant", metavar="NAME", action="append", default=[], help="variant of the level that ran"
    )
    into.add_argument(
        "--steps",
        type=parser.whole_number(0),
        default=0,
        metavar="N",
        help="planned steps (default: the last logged step)",
    )
    into.add_argument(
        "--learning",
        metavar="METRIC",
        help="metric that must rise, a loss fall (default: the framework's, where the level asks for one)",
    )
    into.add_argument(
        "--require", metavar="TEXT", action="append", default=[], help='e.g. "max(reward) > 0.8"'
    )
    into.add_argument(
        "--expect-import",
        metavar="MODULE=PATH",
        action="append",
        default=[],
        help="where a module must come from",
    )
    parser.add_baseline(into)
    into.add_argument("--format", choices=RUN_FORMATS, default="text", help="what is printed (default text)")
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    from jobspec import frameworks
    from jobspec.judging import foreign_run, which_framework

    inferred = ""
    if args.framework:
        framework = frameworks.get(args.framework)
    else:
        foreign_run.check_place(Path(args.path))
        framework, inferred = which_framework.framework_of(
            Path(args.path), args.level or "", learning=bool(args.learning)
        )
    any_program = inferred == which_framework.UNKNOWN  # it has one level
    level = framework.levels[0].name if any_program else args.level or framework.levels[0].name
    expectation = foreign_run.expected(
        framework, level, args.variant, args.steps, args.require, args.learning or "", args.expect_import
    )
    expectation = replace(expectation, inferred=inferred)
    evidence, verdict = foreign_run.judge_files(Path(args.path), expectation)
    if args.baseline:
        from jobspec.judging.baseline import beside, with_baseline

        evidence = beside(evidence, Path(args.baseline))
        verdict = with_baseline(verdict, evidence)
    conclude.print_report(evidence, verdict, "json" if args.json else args.format)
    return verdict.exit_code
