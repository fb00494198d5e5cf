"""From the command line's arguments to a resolved plan, a rendered run directory and a started job.

The calls between the rooms, in order; each room decides for itself.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from jobspec.disk import is_folder
from jobspec.finding import Finding, JobspecError, fail, is_allowed
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch
from jobspec.runs.store import RunStore, known_folders, remember_folder, state_folder

if TYPE_CHECKING:
    from jobspec.plan import Plan
    from jobspec.planning.resolve import Resolved
    from jobspec.spec.find_site import LoadedCluster
    from jobspec.spec.load import LoadedSpec
    from jobspec.sweeps.points import SweepOutcome


@dataclass(frozen=True)
class Rendered:
    """A run directory on disk, not yet started."""

    run: RunPaths
    resolved: Resolved
    findings: tuple[Finding, ...]
    names: tuple[str, ...] = ()  # its files, relative
    points: int = 0  # of a sweep
    finished: int = 0  # of these, points that an earlier run has finished

    @property
    def idle(self) -> bool:
        """A sweep of which every point has finished before."""
        return 0 < self.points == self.finished


def load(args: argparse.Namespace, path: str | None = None) -> tuple[LoadedSpec, LoadedCluster]:
    """The spec with its overrides, and the site profile it is meant for.

    Raises: JobspecError with every finding of the files that are wrong, and for an unknown name in `--allow`.
    """
    from jobspec.spec.load import load_spec

    if args.allow:
        _check_rules(args.allow)
    try:
        loaded = load_spec(Path(path or args.spec), args.set, os.environ, allow=args.allow)
    except JobspecError as problem:
        found = (*_not_allowed(problem.findings, args.allow), *_profile_findings(args))
        raise JobspecError(*found) from problem
    return loaded, cluster(args, loaded.spec.cluster, {"path": "cluster", **loaded.place(("cluster",))})


def _check_rules(allowed: Sequence[str]) -> None:
    from jobspec.checks.rule_names import check_allowed

    if unknown := check_allowed(allowed):
        raise JobspecError(*unknown)


def _not_allowed(findings: Iterable[Finding], allowed: Sequence[str]) -> tuple[Finding, ...]:
    """The findings; an error that stays one although `--allow` names it says so."""
    note = "--allow cannot help: nothing can be planned in spite of it"
    return tuple(
        replace(item, why=f"{item.why} ({note})" if item.why else note)
        if item.is_error and is_allowed(item, allowed)
        else item
        for item in findings
    )


def _profile_findings(args: argparse.Namespace) -> tuple[Finding, ...]:
    """What is wrong with the profile that is named beside a spec which cannot be read itself."""
    if not (args.cluster or args.cluster_file or os.environ.get("JOBSPEC_CLUSTER")):
        return ()
    try:
        return cluster(args).findings
    except JobspecError as problem:
        return tuple(problem.findings)


def cluster(
    args: argparse.Namespace, of_spec: str | None = None, place: Mapping[str, Any] = MappingProxyType({})
) -> LoadedCluster:
    """The site profile: `--cluster` wins, then JOBSPEC_CLUSTER, then the spec, then `local`.

    `place` is where the spec names its own. Raises: as `profile`.
    """
    if args.cluster:
        place = {"file": f"--cluster {args.cluster}"}
    loaded = profile(args.cluster, args.cluster_file, of_spec, place)
    runs = os.environ.get("JOBSPEC_RUNS")
    return _with_runs(loaded, runs) if runs else loaded


def profile(
    name: str | None, file: str | None, of_spec: str | None = None, place: Mapping[str, Any] | None = None
) -> LoadedCluster:
    """The site profile called `name`, else that of JOBSPEC_CLUSTER, else `of_spec`, as its file has it.

    Raises: JobspecError with all that is wrong with it; where there is none, at what named it.
    """
    from jobspec.spec.find_site import load_cluster

    named = os.environ.get("JOBSPEC_CLUSTER")
    try:
        return load_cluster(name or named or of_spec, Path(file) if file else None, os.environ)
    except JobspecError as problem:
        where = {"file": "$JOBSPEC_CLUSTER"} if named and not name else place or {}
        raise JobspecError(*(_placed(item, where) for item in problem.findings)) from problem


def _placed(finding: Finding, where: Mapping[str, Any]) -> Finding:
    return finding if finding.file or not where else replace(finding, **where)


def _with_runs(loaded: LoadedCluster, runs: str) -> LoadedCluster:
    """JOBSPEC_RUNS is where RUN arguments are looked up, so new runs must go there too."""
    from msgspec.structs import replace as replace_fields

    paths = replace_fields(loaded.profile.paths, runs=str(Path(runs).expanduser().absolute()))
    return replace(loaded, profile=replace_fields(loaded.profile, paths=paths))


def resolve(args: argparse.Namespace, path: str | None = None, fetch: bool = False) -> Resolved:
    """The plan that a spec resolves to; errors stay in its findings.

    `fetch` clones repositories that the spec names by URL alone, which only a run needs.
    """
    from jobspec.planning.resolve import resolve as resolve_spec

    loaded, profile = load(args, path)
    resolved = resolve_spec(loaded, profile, level=args.level, allow=args.allow, fetch=fetch)
    return replace(resolved, findings=_not_allowed(resolved.findings, args.allow))


def must_resolve(args: argparse.Namespace) -> Resolved:
    """The resolved spec, without errors. Raises: JobspecError with all findings when there is one."""
    resolved = resolve(args, fetch=True)
    stop_on_errors(resolved.findings)
    return resolved


def must_be_ready(args: argparse.Namespace) -> Resolved:
    """As `must_resolve`, for a run about to start: what it needs must be there now.

    A cluster behind SSH has file systems of its own; its nodes look for themselves.
    """
    from jobspec.checks import at_submit

    resolved = must_resolve(args)
    if not remote(resolved):
        stop_on_errors(at_submit(resolved.findings, args.allow))
    return resolved


def plan_of(resolved: Resolved) -> Plan:
    """The plan of a spec without errors. Raises: JobspecError when there is none."""
    if resolved.plan is None:
        raise JobspecError(*resolved.problems)
    return resolved.plan


def stop_on_errors(findings: Iterable[Finding]) -> None:
    """Raises: JobspecError with all findings, warnings included, when one is an error."""
    known = tuple(findings)
    if any(finding.is_error for finding in known):
        raise JobspecError(*known)


def render_run(resolved: Resolved, args: argparse.Namespace, folder: Path | None = None) -> Rendered:
    """Render a resolved spec, all points of a sweep included, into a new run directory.

    `folder` is used as it is; otherwise the run gets a new id below the plan's folder of runs.
    Raises: JobspecError when a script is not valid bash or the directory cannot be written.
    """
    from datetime import UTC, datetime

    from jobspec.rendering import files as render
    from jobspec.rendering.run_folder import write_run
    from jobspec.rendering.script_check import check_scripts

    plan = plan_of(resolved)
    run_id = render.new_run_id(datetime.now(UTC))
    here = folder.absolute() if folder else _local_folder(resolved, run_id)
    # A remote cluster sees the run under the name that `launchers.base.new_launch` uploads it to.
    run_dir = f"{plan.runs}/{plan.name}/{here.name}" if remote(resolved) else str(here)
    findings, points, finished = resolved.findings, 0, 0
    if resolved.spec.sweep is not None:
        outcome = _render_sweep(resolved, args, run_id, run_dir, here)
        files, points, finished = dict(outcome.files), len(outcome.points), len(outcome.finished)
        findings = (*findings, *outcome.findings)
    else:
        files = dict(render.render(resolved, run_id, run_dir))
    findings = (*findings, *check_scripts(_sample(files)))
    stop_on_errors(findings)
    write_run(files, str(here))
    names = tuple(sorted({*files, "runtime.pyz"}))
    return Rendered(RunPaths(here), resolved, findings, names, points, finished)


def check_sweep(resolved: Resolved, args: argparse.Namespace) -> tuple[Finding, ...]:
    """Findings about every point of a spec's sweep."""
    from jobspec.sweeps import points as sweep

    _, _, findings = sweep.check_sweep(resolved.loaded, resolved.cluster, level=args.level, allow=args.allow)
    return tuple(findings)


def _render_sweep(
    resolved: Resolved, args: argparse.Namespace, run_id: str, run_dir: str, here: Path
) -> SweepOutcome:
    """All points but those that an earlier run beside `here` has finished."""
    from jobspec.sweeps import points as sweep
    from jobspec.sweeps.finished import finished_points

    again = getattr(args, "rerun", False) or not RunPaths(here).standard
    return sweep.render_sweep(
        resolved.loaded,
        resolved.cluster,
        run_id,
        run_dir,
        level=args.level,
        allow=args.allow,
        find_finished=None if again else lambda keys: finished_points(here.parent, keys),
    )


def _sample(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """What the script checks look at: everything, but of a sweep's points the first and the last alone.

    The points' scripts come from one template and differ in quoted values; 1000 of them cost minutes.
    """
    points = sorted({int(name.split("/")[1]) for name in files if name.startswith("points/")})
    kept = {f"points/{number}/" for number in (points[:1] + points[-1:])}
    return {
        name: text
        for name, text in files.items()
        if not name.startswith("points/") or any(name.startswith(prefix) for prefix in kept)
    }


def remote(resolved: Resolved) -> bool:
    return plan_of(resolved).scheduler == "slurm" and resolved.cluster.profile.access.login != "here"


def _local_folder(resolved: Resolved, run_id: str) -> Path:
    """Where the run directory is written: its final place, or a copy here when the cluster is elsewhere."""
    plan = plan_of(resolved)
    if remote(resolved):
        return state_folder(os.environ) / "remote" / plan.cluster / plan.name / run_id
    return Path(plan.runs) / plan.name / run_id


def start(rendered: Rendered) -> Launch:
    """Start a rendered run. Raises: JobspecError when a secret is missing or the scheduler refuses."""
    return start_run(rendered.run, plan_of(rendered.resolved), rendered.resolved.cluster)


def start_run(run: RunPaths, plan: Plan, profile: LoadedCluster) -> Launch:
    from jobspec import launchers

    if run.points():
        plan = _with_array(run, plan)
    secrets = launchers.read_secrets(plan.secrets, os.environ)
    if run.standard:
        remember_folder(run.root.parent.parent, os.environ)
    return launchers.for_plan(plan, profile.profile).submit(run, plan, secrets)


def _with_array(run: RunPaths, plan: Plan) -> Plan:
    """The plan with the tasks that the sweep's own batch script asks for."""
    from jobspec.plan import from_json

    array = from_json(run.plan.read_text(encoding="utf-8")).slurm.array
    return replace(plan, slurm=replace(plan.slurm, array=array))


def store(args: argparse.Namespace) -> RunStore:
    """The runs that RUN arguments refer to: `--runs`, JOBSPEC_RUNS, or every folder submitted to.

    Raises: JobspecError for a folder of `--runs` that is none. That of JOBSPEC_RUNS comes with the first run.
    """
    if args.runs and not is_folder(os.path.expanduser(args.runs)):  # noqa: PTH111 - may stay relative
        raise fail("usage.arguments", f"there is no folder `{args.runs}`", fix="check `--runs`")
    chosen = args.runs or os.environ.get("JOBSPEC_RUNS")
    if chosen:
        return RunStore(Path(chosen).expanduser())
    return RunStore(Path("runs"), *known_folders(os.environ))


def launched(run: RunPaths) -> Launch:
    """The run's launch record. Raises: JobspecError when it was rendered and never started."""
    from jobspec.runs.records import read_launch

    launch = read_launch(run)
    if launch is None:
        raise fail(
            "run.not-started",
            f"run `{run.run_id}` was rendered and never started",
            fix=f"jobspec submit {run.root}",
        )
    return launch
