"""Take the stacks of all processes of a running job, on all nodes, and say which of them differ.

Two samples are taken, so that it shows what moves. They lie in `attempts/<n>/dumps` of the run's folder. The
run goes on.
"""

from __future__ import annotations

import argparse

from jobspec.cli import in_job, parser
from jobspec.rendering.run_folder import read_plan
from jobspec.runs.owner import own
from jobspec.runs.store import open_store


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument("run", metavar="RUN", help="run id, prefix, name, directory, or last")
    into.add_argument("--point", metavar="N", type=parser.whole_number(0), help="point of a sweep")
    into.add_argument(
        "--apart", metavar="SECONDS", type=parser.whole_number(0), default=30, help="between the two samples"
    )
    parser.add_runs(into)
    parser.add_json(into)
    into.set_defaults(node="")


def run(args: argparse.Namespace) -> int:
    run_paths = own(open_store(args.runs).find(args.run))
    plan = read_plan((run_paths.points() or [run_paths])[0])
    words = [plan.container.python, "-m", "jobspec.runtime", "dump", "--apart", str(args.apart)]
    return in_job.enter(args, [*words, *(["--json"] if args.json else [])])
