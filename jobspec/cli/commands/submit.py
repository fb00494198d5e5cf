"""Render a spec and start it; SPEC may also be a folder that `jobspec render` wrote.

Submitting the same folder again never starts a second job: a lost answer of the scheduler is looked up.
"""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec import pipeline
from jobspec.cli import output, parser
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch

if TYPE_CHECKING:
    from jobspec.plan import Plan
    from jobspec.spec.find_site import LoadedCluster


_RUN_DIR = re.compile(r"^export JOBSPEC_RUN_DIR=(.+)$", re.MULTILINE)


def add_arguments(into: argparse.ArgumentParser) -> None:
    parser.add_spec(into)
    into.add_argument("--dry-run", action="store_true", help="check and render in memory, start nothing")
    into.add_argument("--watch", action="store_true", help="follow the run to its verdict, as `jobspec run`")
    parser.add_rerun(into)
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    if args.dry_run:
        return _dry_run(args)
    run_paths, launch = submit(args)
    if launch is None:
        return _nothing_to_run(run_paths, args.json)
    if args.json and not args.watch:
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
    if not args.json:
        print(announcement(run_paths, launch))
    if args.watch:
        from jobspec.cli.commands.run import follow_to_verdict

        return follow_to_verdict(run_paths, launch, as_json=args.json)
    print(f"jobspec status {run_paths.ref}   jobspec logs -f {run_paths.ref}")
    return 0


def _nothing_to_run(run_paths: RunPaths, as_json: bool) -> int:
    if as_json:
        output.print_json({"run_id": run_paths.run_id, "run_dir": str(run_paths.root), "job_id": ""})
    else:
        print(f"every point has finished before, nothing was started: jobspec report {run_paths.ref}")
    return 0


def submit(args: argparse.Namespace) -> tuple[RunPaths, Launch | None]:
    """Start a spec, or a rendered folder, and return where it runs; no launch if all points have finished."""
    if Path(args.spec).is_dir():
        return _submit_folder(args)
    rendered = pipeline.render_run(pipeline.must_be_ready(args), args)
    if not args.json:
        output.print_findings(rendered.findings)
        if rendered.finished:
            print(f"{rendered.finished} of {rendered.points} points have finished in an earlier run")
    return rendered.run, None if rendered.idle else pipeline.start(rendered)


def _submit_folder(args: argparse.Namespace) -> tuple[RunPaths, Launch | None]:
    from jobspec.finding import fail
    from jobspec.plan import from_json

    _refuse_changes(args)
    run_paths = pipeline.store(argparse.Namespace(runs=None)).find(args.spec)
    points = run_paths.points()
    if run_paths.is_sweep and not points:
        return run_paths, None
    plan_file = (points[0] if points else run_paths).plan
    try:
        plan = from_json(plan_file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise fail(
            "run.damaged-file",
            "`plan.json` cannot be read",
            why=str(problem),
            fix="render the spec again",
            file=str(plan_file),
        ) from problem
    cluster = _profile_of(plan, args)
    if plan.scheduler == "local" or cluster.profile.access.login == "here":
        _refuse_moved(run_paths)
    return run_paths, pipeline.start_run(run_paths, plan, cluster)


def _refuse_moved(run_paths: RunPaths) -> None:
    """Raises: JobspecError where the scripts of a folder would run, and write to, another one."""
    from jobspec.finding import fail

    folder = (run_paths.points() or [run_paths])[0]
    found = _RUN_DIR.search(folder.job.read_text(encoding="utf-8")) if folder.job.is_file() else None
    rendered = Path(*shlex.split(found.group(1))) if found else folder.root
    if run_paths.state.exists() or (rendered.exists() and rendered.samefile(folder.root)):
        return
    raise fail(
        "launch.moved",
        f"`{folder.root}` was rendered as `{rendered}`",
        why="the scripts in it name that folder: the run would write there, or not start",
        fix="render the spec again with `--out`, or move the folder back",
    )


def _profile_of(plan: Plan, args: argparse.Namespace) -> LoadedCluster:
    """The profile that a folder was rendered for, whatever JOBSPEC_CLUSTER says.

    Raises: JobspecError for another one: paths, options and scripts are made for one site.
    """
    from jobspec.finding import fail

    loaded = pipeline.profile(args.cluster or plan.cluster, args.cluster_file)
    if loaded.profile.name != plan.cluster:
        raise fail(
            "usage.arguments",
            f"the folder was rendered for `{plan.cluster}`, not for `{loaded.profile.name}`",
            fix=f"leave `--cluster` out, or render the spec for `{loaded.profile.name}`",
        )
    return loaded


def _refuse_changes(args: argparse.Namespace) -> None:
    """Raises: JobspecError for an option that changes a spec: a rendered folder is run as it is."""
    from jobspec.finding import fail

    given = {"--set": args.set, "--level": args.level, "--allow": args.allow, "--rerun": args.rerun}
    unused = [f"`{option}`" for option, value in given.items() if value]
    if unused:
        raise fail(
            "usage.arguments",
            f"{', '.join(unused)} cannot change a rendered folder",
            why=f"the files in `{args.spec}` are run as they are",
            fix="submit the spec with that option, or leave it out",
        )


def announcement(run_paths: RunPaths, launch: Launch) -> str:
    what = f"job {launch.job_id}" if launch.launcher == "slurm" else f"process {launch.job_id}"
    return f"run {launch.run_id}: {what} on {launch.cluster}, {run_paths.root}"


def _dry_run(args: argparse.Namespace) -> int:
    """Everything up to the scheduler, in a temporary folder that is removed again."""
    import tempfile

    resolved = pipeline.must_be_ready(args)
    with tempfile.TemporaryDirectory(prefix="jobspec-dry-run-") as folder:
        rendered = pipeline.render_run(resolved, args, Path(folder) / "run")
        script = rendered.run.job.read_text(encoding="utf-8").replace(str(rendered.run.root), "RUN_DIR")
        points = len(rendered.run.points())
    if args.json:
        output.print_json({"ok": True, "job_sbatch": script, "points": points})
        return 0
    output.print_findings(rendered.findings)
    print(script, end="")
    print(f"# nothing was submitted{f'; {points} points' if points else ''}")
    return 0
