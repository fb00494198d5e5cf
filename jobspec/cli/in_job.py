"""A command or a shell inside a running job, through the run directory's own `attach.sh`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from jobspec import pipeline
from jobspec.cli.live import observe
from jobspec.finding import fail
from jobspec.launchers import JobStatus
from jobspec.launchers.access import connect
from jobspec.runs.owner import own
from jobspec.runs.paths import RunPaths, array_ranges
from jobspec.runs.records import Launch
from jobspec.runs.store import open_store
from jobspec.runtime.base import hostlist
from jobspec.words import did_you_mean


def enter(args: argparse.Namespace, command: Sequence[str]) -> int:
    """Run `command`, or a shell, in the job. Raises: JobspecError when the job does not run."""
    run_paths = own(open_store(args.runs).find(args.run))
    launch = pipeline.launched(run_paths)
    view = observe.observe([run_paths])[0]
    if view.status is None or not view.status.state.active:
        state = view.status.state.value if view.status else "not started"
        raise fail(
            "run.not-running",
            f"run `{run_paths.run_id}` is {state}",
            why=view.status.reason if view.status else "",
            fix="pick a run from `jobspec status`; `launch: {hold: true}` keeps a job up after its driver",
        )
    if not launch.allocation:  # its process is on this machine, its nodes are the job's
        has_node(run_paths, view.status, args.node, args.point)
    client = connect(launch)
    return client.interactive(attach_argv(run_paths, launch, command, args.node, args.point))


def has_node(run: RunPaths, status: JobStatus, node: str, point: int | None) -> None:
    """Raises: JobspecError when the job is known to run elsewhere; srun's own words name no node of it."""
    task = None if point is None else status.tasks.get(point)
    try:
        nodes = hostlist.expand((task or status).nodes)
    except hostlist.HostlistError:
        return
    if node and nodes and node.partition(".")[0] not in {name.partition(".")[0] for name in nodes}:
        raise fail(
            "run.no-node",
            f"run `{run.run_id}` has no node `{node}`",
            why=f"it runs on {(task or status).nodes}",
            fix=did_you_mean(node, nodes) or "name one of its nodes, or leave `--node` out for the head",
        )


def attach_argv(
    run: RunPaths, launch: Launch, command: Sequence[str], node: str = "", point: int | None = None
) -> list[str]:
    """The call of `attach.sh` for a run or for one point of a sweep.

    Raises: JobspecError when the run is a sweep and no existing point is named.
    """
    points = [int(item.run_id) for item in run.points()]
    folder, job_id = launch.run_dir, launch.job_id
    if points:
        if point is None or point not in points:
            raise fail(
                "usage.point",
                f"the run is a sweep of {len(points)} points"
                if point is None
                else f"there is no point {point}",
                fix=f"name a point by `--point`: {array_ranges(points)}",
            )
        folder, job_id = f"{folder}/points/{point}", f"{job_id}_{point}" if launch.array else job_id
    argv = ["bash", f"{folder}/attach.sh"]
    if launch.launcher == "slurm" or launch.allocation:
        argv += ["-j", launch.allocation or job_id]
    if node:
        argv += ["-n", node]
    return [*argv, "--", *command] if command else argv
