"""Submit a spec, follow it through its phases, and report. The exit code is the verdict.

0 Pass, 1 Fail, 2 bad spec or usage, 3 Blocked, 4 nothing ran. Ctrl-C leaves a Slurm job running and prints
how to end it. Ctrl-C cancels a run on this machine, since nobody else would end it. SIGTERM works like
Ctrl-C; a closed terminal cancels nothing.

With `--here` the run's step starts at once in an allocation that is there: the one of this shell, or that of
a held run or a job of yours (`--here RUN|JOBID`); same evidence, same verdict. One run at a time is in it,
one after the other as often as wanted. Ctrl-C cancels the run, and the allocation stays.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from jobspec import launchers
from jobspec.cli import parser
from jobspec.cli.commands.submit import announcement, submit
from jobspec.cli.live import conclude
from jobspec.cli.live.follow import follow_to_verdict
from jobspec.finding import fail


def add_arguments(into: argparse.ArgumentParser) -> None:
    parser.add_spec(into, nargs="?")
    into.add_argument(
        "--here",
        metavar="RUN|JOBID",
        nargs="?",
        const=True,
        default=False,
        help="in a Slurm allocation that is there: of a held run or a job, else of this shell (`salloc`)",
    )
    parser.add_rerun(into)
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    with _sigterm_as_ctrl_c():
        return _run(args)


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(args: argparse.Namespace) -> int:
    if args.spec is None and isinstance(args.here, str):  # `run --here SPEC`
        args.spec, args.here = args.here, True
    if args.spec is None:
        raise fail("usage.arguments", "no spec is named", fix="write it like `jobspec run spec.yaml`")
    try:
        run_paths, launch = submit(replace(parser.request(args), here=args.here), args.json, watch=True)
        if launch is None:
            return conclude.conclude(run_paths, "json" if args.json else "text")
        if not args.json:
            print(announcement(run_paths, launch), flush=True)
        return follow_to_verdict(run_paths, launch, as_json=args.json)
    except KeyboardInterrupt:  # after the start, before the run is followed
        launchers.cancel_started()
        raise
