"""Open a shell in a running job: on its head node, in its container, with its environment."""

from __future__ import annotations

import argparse

from jobspec.cli import in_job, parser


def add_arguments(into: argparse.ArgumentParser) -> None:
    parser.add_run(into)
    into.add_argument("--node", metavar="NODE", default="", help="host name (default: the head node)")
    into.add_argument("--point", metavar="N", type=parser.whole_number(0), help="point of a sweep")


def run(args: argparse.Namespace) -> int:
    return in_job.enter(args, [])
