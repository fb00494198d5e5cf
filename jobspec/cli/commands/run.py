"""Submit a spec, follow it through its phases, and report. The exit code is the verdict.

0 Pass, 1 Fail, 2 bad spec or usage, 3 Blocked, 4 nothing ran. Ctrl-C leaves a Slurm job running and prints
how to end it. Ctrl-C cancels a run on this machine, since nobody else would end it. SIGTERM works like
Ctrl-C; a closed terminal cancels nothing.

With `--here` the run's step starts in the allocation that this shell has, at once and as often as wanted:
same evidence, same verdict. Ctrl-C cancels it, and the allocation stays.
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


def add_arguments(into: argparse.ArgumentParser) -> None:
    parser.add_spec(into)
    into.add_argument(
        "--here",
        action="store_true",
        help="in the Slurm allocation of this shell (`salloc`), instead of a job of its own",
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
