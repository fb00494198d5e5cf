"""Render a spec and start it; SPEC may also be a folder that `jobspec render` wrote.

Submitting the same folder again never starts a second job: a submission without an answer is looked up.
While an earlier run of the spec's name has none, the spec is refused (`launch.unsettled`) with the command
that goes on.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys

from jobspec import pipeline
from jobspec.cli import output, parser
from jobspec.launchers.environment import WATCHER
from jobspec.pipeline import Rendered, Request
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch


def add_arguments(into: argparse.ArgumentParser) -> None:
    parser.add_spec(into)
    into.add_argument(
        "--dry-run",
        action="store_true",
        help="show the plan, its cost and what the queue says of it; start nothing",
    )
    into.add_argument(
        "--watch", action="store_true", help="follow the run to its verdict, as `jobspec run` does"
    )
    parser.add_rerun(into)
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    request = parser.request(args)
    if args.dry_run:
        from jobspec.cli.dry_run import dry_run

        return dry_run(request, args.json)
    return start(request, args.watch, args.json)


def start(request: Request, watch: bool, as_json: bool) -> int:
    """Submit, say where it runs, and follow it to its verdict where `watch` asks for that; the exit code."""
    run_paths, launch = submit(request, as_json, watch)
    if launch is None:
        return _nothing_to_run(run_paths, as_json)
    if as_json and not watch:
        output.print_json(
            {
                "run_id": launch.run_id,
                "run_dir": str(run_paths.root),
                "job_id": launch.job_id,
                "cluster": launch.cluster,
                "launcher": launch.launcher,
            }
        )
        return 0
    if not as_json:
        print(announcement(run_paths, launch))
    if watch:
        from jobspec.cli.live.follow import follow_to_verdict

        return follow_to_verdict(run_paths, launch, as_json)
    print(f"jobspec status {run_paths.ref}   jobspec logs -f {run_paths.ref}")
    return 0


def _nothing_to_run(run_paths: RunPaths, as_json: bool) -> int:
    if as_json:
        output.print_json({"run_id": run_paths.run_id, "run_dir": str(run_paths.root), "job_id": ""})
    else:
        print(f"nothing was started, every point has finished before: jobspec report {run_paths.ref}")
    return 0


def submit(request: Request, as_json: bool, watch: bool) -> tuple[RunPaths, Launch | None]:
    """`pipeline.submit`; findings and the next step are printed before the start.

    With `watch` this process waits for the run: a job of this machine then leaves the reports to it.
    """
    os.environ[WATCHER] = str(os.getpid()) if watch else ""

    def tell(rendered: Rendered) -> None:
        if not as_json:
            _tell(rendered)
        # Before the scheduler can make anybody wait: the way back to a run whose submission is interrupted.
        if rendered.scheduler != "local" and not rendered.idle and not request.here:
            file = ["--cluster-file", str(request.cluster_file)] if request.cluster_file else []
            again = shlex.join(["jobspec", "submit", str(rendered.run.root), *file])
            print(f"run {rendered.run.run_id}: if interrupted, `{again}` goes on", file=sys.stderr)

    return pipeline.submit(request, tell)


def _tell(rendered: Rendered) -> None:
    output.print_findings(rendered.findings)
    if rendered.finished:
        print(f"{rendered.finished} of {rendered.points} points have finished in an earlier run")


def announcement(run_paths: RunPaths, launch: Launch) -> str:
    what = f"job {launch.job_id}" if launch.launcher == "slurm" else f"process {launch.job_id}"
    return f"run {launch.run_id}: {what} on {launch.cluster}, {run_paths.root}"
