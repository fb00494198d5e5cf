"""End runs: on Slurm by scancel, on this machine by signalling the run's processes and waiting for them.

What a run has produced so far is collected first, within the scheduler's grace time.
"""

from __future__ import annotations

import argparse

from jobspec import launchers, pipeline
from jobspec.cli import output, parser
from jobspec.cli.commands.status import as_json
from jobspec.cli.live import observe
from jobspec.cli.live.observe import View
from jobspec.finding import JobspecError
from jobspec.launchers import JobState
from jobspec.runs.owner import own


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument("runs_wanted", metavar="RUN", nargs="+", help="run id, prefix, directory, or last")
    parser.add_runs(into)
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    store = pipeline.store(args.runs)
    # The record of a stranger could name any process or job of ours.
    runs = [own(store.find(ref)) for ref in args.runs_wanted]
    views = observe.observe(runs)
    damaged = [finding for view in views for finding in view.damaged]
    if damaged:  # nobody knows whether these runs go on
        raise JobspecError(*damaged)
    live = [view.launch for view in views if view.launch is not None and not view.final]
    launchers.cancel(live)
    after = observe.observe(runs)
    if args.json:
        output.print_json([as_json(view) for view in after])
        return 0
    for before, now in zip(views, after, strict=True):
        if before.final:
            state = f"already {before.status.state.value}" if before.status else "not started"
            print(f"run {before.run.run_id}: {state}")
        elif before.launch and before.launch.launcher == "local" and not before.launch.submitted:
            print(f"run {before.run.run_id}: not started, its submission was interrupted")
        else:
            print(f"run {now.run.run_id}: {_end(now)}")
    return 0


def _end(now: View) -> str:
    state = now.status.state if now.status else JobState.UNKNOWN
    if state is JobState.COMPLETED:  # it was quicker
        return f"already {state.value}"
    return "cancelled" if now.final else f"cancelled, still {state.value}"
