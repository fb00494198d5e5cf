"""End runs: on Slurm by scancel, on this machine by signalling the run's processes and waiting for them.

What a run has produced so far is collected first, within the scheduler's grace time. A name means the run of
that name that goes on, not the newest one; of several you choose by id. Each RUN is tried: the exit code is 2
where one of them could not be cancelled.
"""

from __future__ import annotations

import argparse

from jobspec import launchers
from jobspec.cli import output, parser
from jobspec.cli.boundary import USAGE
from jobspec.cli.commands.status import as_json
from jobspec.cli.live import observe
from jobspec.cli.live.observe import View
from jobspec.finding import JobspecError, fail
from jobspec.launchers import JobState
from jobspec.runs.owner import own, owner
from jobspec.runs.paths import RunPaths
from jobspec.runs.store import RunStore, open_store
from jobspec.words import some


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument(
        "runs_wanted", metavar="RUN", nargs="+", help="run id, prefix, name, directory, or last"
    )
    parser.add_runs(into)
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    store = open_store(args.runs)
    # The record of a stranger could name any process or job of ours.
    runs = [own(_wanted(store, ref)) for ref in args.runs_wanted]
    views = observe.observe(runs)
    damaged = [finding for view in views for finding in view.damaged]
    if damaged:  # nobody knows whether these runs go on
        raise JobspecError(*damaged)
    refused = set[RunPaths]()
    for view in views:
        if view.launch is not None and not view.final:
            try:
                launchers.cancel(view.launch)
            except JobspecError as problem:
                refused.add(view.run)
                output.print_findings(problem.findings)
    after = observe.observe(runs)
    if args.json:
        output.print_json([as_json(view) for view in after])
    else:
        for before, now in zip(views, after, strict=True):
            end = "not cancelled" if now.run in refused else _end(before, now)
            print(f"run {now.run.run_id}: {end}")
    return USAGE if refused else 0


def _wanted(store: RunStore, ref: str) -> RunPaths:
    """The run of `ref`; of a name the one that goes on. Raises: JobspecError where several of them go on."""
    mine = [run for run in store.named(ref) if not owner(run.root)]
    if len(mine) < 2:
        return store.find(ref)
    live = [view.run for view in observe.observe(mine) if view.launch is not None and not view.final]
    if len(live) > 1:
        shown = some([f"`{run.run_id}`" for run in live], 8)
        what = f"{len(live)} runs of the name `{ref}` go on"
        raise fail("run.ambiguous", what, why=f"candidates: {shown}", fix="name one by its id")
    return live[0] if live else store.find(ref)


def _end(before: View, now: View) -> str:
    if before.final:
        return f"already {before.status.state.value}" if before.status else "not started"
    if before.launch and before.launch.launcher == "local" and not before.launch.submitted:
        return "not started, its submission was interrupted"
    state = now.status.state if now.status else JobState.UNKNOWN
    if state is JobState.COMPLETED:  # it was quicker
        return f"already {state.value}"
    return "cancelled" if now.final else f"cancelled, still {state.value}"
