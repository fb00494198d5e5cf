"""Run a command in a running job's container: `jobspec exec RUN -- nvidia-smi`. Its exit code is passed on.

With `launch: {hold: true}` the job stays up after the driver has ended.
"""

from __future__ import annotations

import argparse

from jobspec.cli import in_job, parser
from jobspec.finding import fail


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument("run", metavar="RUN", help="run id, prefix, name, directory, or last")
    into.add_argument("--node", metavar="NODE", default="", help="host name (default: the head node)")
    into.add_argument("--point", metavar="N", type=parser.whole_number(0), help="point of a sweep")
    parser.add_runs(into)
    parser.add_rest(into, "CMD", "after --: the command and its arguments, options included")


def run(args: argparse.Namespace) -> int:
    if not args.rest:
        raise fail(
            "usage.arguments",
            "no command was given",
            why="`exec` runs the command after `--`",
            fix="write it like `jobspec exec RUN -- nvidia-smi`",
        )
    return in_job.enter(args, args.rest)
