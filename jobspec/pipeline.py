"""From a Request to a plan, a rendered run directory, a started job and its verdict.

The calls between the rooms, in order; each room decides for itself. Nothing here prints. More than 400 lines:
a call for each room, and what they are called with.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobspec.finding import Finding, JobspecError, fail, stop_on_errors
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch, read_launch, repeats
from jobspec.runs.store import open_store, state_folder

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence
    from jobspec.launchers import JobStatus
    from jobspec.launchers.slurm.here import Allocation
    from jobspec.plan import Plan
    from jobspec.planning.lookups import Lookups
    from jobspec.planning.resolve import Resolved
    from jobspec.spec.find_site import LoadedCluster
    from jobspec.spec.job import JobSpec
    from jobspec.spec.load import LoadedSpec
    from jobspec.sweeps.points import SweepOutcome
    from jobspec.verdict import Verdict


@dataclass(frozen=True)
class Request:
    """A spec file, and everything that changes the plan it resolves to.

    `spec` is a YAML file; `submit` also takes a rendered folder. `cluster` names a site profile,
    `cluster_file` its file; else JOBSPEC_CLUSTER, the spec and then `local` decide. `sets` are overrides such
    as `train.steps=10`, in order. `allow` names rules whose errors become warnings. New runs go below the
    folder `runs`, else below JOBSPEC_RUNS or the profile's folder. `rerun` repeats the points of a sweep that
    an earlier run has finished. Of a lock, `moved` maps folders to where they lie now, `reset` names keys
    that this site gives anew, and `reproduces` says that the run is to be compared with that of the lock.
    `content` is the spec's where it was read before: its user has agreed to that, whatever the file says now.
    `here` starts the run in a Slurm allocation that is there: this shell's (True), or that of a held run or a
    job, by its name.
    """

    spec: str | Path
    cluster: str | None = None
    cluster_file: str | Path | None = None
    sets: Sequence[str] = ()
    allow: Sequence[str] = ()
    runs: str | Path | None = None
    rerun: bool = False
    moved: Mapping[str, str] = field(default_factory=dict)
    reset: Sequence[str] = ()
    reproduces: bool = False
    content: bytes | None = None
    here: bool | str = False


@dataclass(frozen=True)
class Rendered:
    """A run directory on disk, not yet started. `names` are its files, relative to `run.root`.

    `finished` of a sweep's `points` have finished in an earlier run and do not run again. `scheduler` names
    what will start it.
    """

    run: RunPaths
    findings: tuple[Finding, ...]
    names: tuple[str, ...] = ()
    points: int = 0
    finished: int = 0
    scheduler: str = ""

    @property
    def idle(self) -> bool:
        """Whether every point of a sweep has finished before."""
        return 0 < self.points == self.finished


def load(request: Request) -> JobSpec:
    """The typed spec of a file, overrides applied and `${env:}` and `${spec:}` filled in.

    Raises: JobspecError with every finding of spec and site profile, and for an unknown rule in `allow`.
    """
    return load_on_site(request)[0].spec


def load_on_site(request: Request) -> tuple[LoadedSpec, LoadedCluster]:
    """The spec with its overrides, and its site profile. Raises: as `load`."""
    from jobspec.checks import not_allowed
    from jobspec.checks.rule_names import check_allowed
    from jobspec.planning.levels import spread
    from jobspec.planning.relocated import relocated
    from jobspec.spec.load import BrokenSpecError, load_spec

    stop_on_errors(check_allowed(request.allow))
    try:
        loaded = load_spec(
            Path(request.spec), request.sets, os.environ, allow=request.allow, content=request.content
        )
        if request.moved or request.reset:
            loaded = relocated(loaded, request.moved, request.reset)
        loaded = spread(loaded)
    except JobspecError as problem:
        findings = (*not_allowed(problem.findings, request.allow), *_profile_findings(request))
        raise BrokenSpecError(*findings, rest=getattr(problem, "rest", None)) from problem
    return loaded, cluster(request, loaded.spec.cluster, {"path": "cluster", **loaded.place(("cluster",))})


def _profile_findings(request: Request) -> tuple[Finding, ...]:
    """Findings about the requested profile, when the spec itself cannot be read."""
    if not (request.cluster or request.cluster_file or os.environ.get("JOBSPEC_CLUSTER")):
        return ()
    try:
        return cluster(request).findings
    except JobspecError as problem:
        return tuple(problem.findings)


def cluster(
    request: Request, of_spec: str | None = None, place: Mapping[str, Any] | None = None
) -> LoadedCluster:
    """The site profile of the request, else of JOBSPEC_CLUSTER, else of the spec, else `local`.

    A folder of runs in the request replaces the profile's. `place` is where the spec names its profile.
    Raises: as `profile`.
    """
    from msgspec.structs import replace as replace_fields

    if request.cluster:
        place = {"file": f"--cluster {request.cluster}"}
    loaded = profile(request.cluster, request.cluster_file, of_spec, place)
    runs = request.runs or os.environ.get("JOBSPEC_RUNS")  # RUN arguments are looked up there, too
    if not runs:
        return loaded
    paths = replace_fields(loaded.profile.paths, runs=str(Path(runs).expanduser().absolute()))
    return replace(loaded, profile=replace_fields(loaded.profile, paths=paths))


def profile(
    name: str | None,
    file: str | Path | None,
    of_spec: str | None = None,
    place: Mapping[str, Any] | None = None,
) -> LoadedCluster:
    """The site profile called `name`, else that of JOBSPEC_CLUSTER, else `of_spec`, unchanged from its file.

    Raises: JobspecError with all findings about it; for a missing profile at the option that named it.
    """
    from jobspec.spec.find_site import load_cluster

    named = os.environ.get("JOBSPEC_CLUSTER")
    try:
        return load_cluster(name or named or of_spec, Path(file) if file else None, os.environ)
    except JobspecError as problem:
        where = {"file": "$JOBSPEC_CLUSTER"} if named and not name else place or {}
        findings = (item if item.file or not where else replace(item, **where) for item in problem.findings)
        raise JobspecError(*findings) from problem


def check(request: Request) -> tuple[Finding, ...]:
    """All errors and warnings about a spec, or a rendered folder, each point of its sweep included."""
    from jobspec.planning.lookups import Lookups

    if Path(request.spec).is_dir():
        try:
            run, request = of_folder(request)
        except JobspecError as problem:
            return tuple(problem.findings)
        return (*damaged_folder(run), *check(request))
    lookups = Lookups(asks=True)
    try:
        resolved = resolve(request, lookups=lookups)
        unknown = resolved.plan is None or any(item.is_error for item in resolved.findings)
        if resolved.spec.sweep is None or unknown:
            return resolved.findings
        from jobspec.sweeps.points import check_sweep

        _, _, findings = check_sweep(resolved.loaded, resolved.cluster, allow=request.allow, lookups=lookups)
        return tuple(dict.fromkeys((*resolved.findings, *findings)))
    except JobspecError as problem:
        return (*problem.findings, *_of_the_rest(request, problem, lookups))


def _of_the_rest(request: Request, problem: JobspecError, lookups: Lookups) -> tuple[Finding, ...]:
    """What is wrong beside the errors that keep a spec from being read."""
    from jobspec.planning.sound_sections import errors_elsewhere

    rest = getattr(problem, "rest", None)
    if rest is None:
        return ()
    try:
        return errors_elsewhere(rest, cluster(request, rest.spec.cluster), problem, request.allow, lookups)
    except JobspecError:  # of the site, which is told; or of git
        return ()


def make_plan(request: Request) -> Plan:
    """The plan of a spec: commands, paths, environment, and the claims to prove.

    Reads checkouts and the Hugging Face cache, writes nothing. Sizes are in bytes, times in seconds.
    Raises: JobspecError with all findings when one is an error.
    """
    return must_resolve(request, fetch=False).ready_plan


def resolve(request: Request, fetch: bool = False, lookups: Lookups | None = None) -> Resolved:
    """The plan that a spec resolves to, with its errors among the findings.

    `fetch` clones repositories that the spec names by URL alone; only a run needs them.
    """
    from jobspec.checks import not_allowed
    from jobspec.launchers import with_far_side
    from jobspec.planning.no_effect import told_idle
    from jobspec.planning.resolve import resolve as resolve_spec

    loaded, site = load_on_site(request)
    resolved = resolve_spec(loaded, with_far_side(site), allow=request.allow, fetch=fetch, lookups=lookups)
    findings = (*not_allowed(resolved.findings, request.allow), *told_idle(resolved))
    if not request.reproduces and isinstance(loaded.raw.get("lock"), Mapping):
        findings = tuple(_made_again(finding, request) for finding in findings)
    return replace(resolved, findings=findings)


def _made_again(finding: Finding, request: Request) -> Finding:
    """Of a lock whose checkout is gone or elsewhere: the command that makes it again."""
    if finding.rule not in ("repo.missing", "repo.ref-mismatch", "repo.ref-unknown"):
        return finding
    fix = f"run `jobspec reproduce {request.spec}`: it makes the checkout again as the lock has it"
    return replace(finding, fix=fix)


def must_resolve(request: Request, fetch: bool = True) -> Resolved:
    """The resolved spec, without errors. Raises: JobspecError with all findings when there is one."""
    resolved = resolve(request, fetch)
    stop_on_errors(resolved.findings)
    return resolved


def must_be_ready(request: Request) -> Resolved:
    """`must_resolve` for a run about to start: its inputs must be there now, as this machine or the cluster's
    login node sees them.
    """
    from jobspec.checks import at_submit

    resolved = must_resolve(request)
    stop_on_errors(at_submit(resolved.findings, request.allow))
    return resolved


def render_run(request: Request, folder: str | Path | None = None) -> Rendered:
    """Write the run directory of a spec, all points of a sweep included, and start nothing.

    `folder` must not exist yet; without it the run gets a new id below the folder of runs.
    Raises: JobspecError when the spec has an error, or the directory exists or cannot be written.
    """
    return render_resolved(must_resolve(request), request, Path(folder) if folder else None)


def render_resolved(resolved: Resolved, request: Request, folder: Path | None = None) -> Rendered:
    """`render_run` for a resolved spec. Raises: as `render_run`, and for a script that is not bash."""
    from datetime import UTC, datetime

    from jobspec.planning.frozen import keep
    from jobspec.rendering import files as render
    from jobspec.rendering import run_folder, script_check

    plan = resolved.ready_plan
    run_id = render.new_run_id(datetime.now(UTC))
    here = folder.absolute() if folder else _local_folder(resolved, run_id)
    # On a remote cluster the run has the name that `launchers.base.new_launch` uploads it to.
    run_dir = f"{plan.runs}/{plan.name}/{here.name}" if resolved.remote else str(here)
    findings, used, points, finished = resolved.findings, [resolved], 0, 0
    if resolved.spec.sweep is not None:
        outcome = _render_sweep(resolved, request, run_id, run_dir, here)
        files, points, finished = dict(outcome.files), len(outcome.points), len(outcome.finished)
        findings, used = (*findings, *outcome.findings), [*outcome.resolved]
    else:
        files = dict(render.render(resolved, run_id, run_dir))
    findings = (*findings, *script_check.check_scripts(script_check.sample(files)))
    stop_on_errors(findings)
    if request.reproduces:
        files |= repeats(Path(request.spec).absolute(), files)
    run_folder.write_run(files, str(here))
    keep([repo.copy for item in used for repo in item.repos], here)
    names = tuple(sorted({*files, "runtime.pyz"}))
    return Rendered(RunPaths(here), findings, names, points, finished, plan.scheduler)


def _render_sweep(
    resolved: Resolved, request: Request, run_id: str, run_dir: str, here: Path
) -> SweepOutcome:
    """The files of all points, without those that an earlier run beside `here` has finished."""
    from jobspec.sweeps import points as sweep
    from jobspec.sweeps.finished import finished_points

    again = request.rerun or not RunPaths(here).standard
    return sweep.render_sweep(
        resolved.loaded,
        resolved.cluster,
        run_id,
        run_dir,
        allow=request.allow,
        find_finished=None if again else lambda keys: finished_points(here.parent, keys),
    )


def _local_folder(resolved: Resolved, run_id: str) -> Path:
    """The folder to write the run directory to: its final place, or a copy here for a remote cluster."""
    plan = resolved.ready_plan
    if resolved.remote:
        return state_folder(os.environ) / "remote" / plan.cluster / plan.name / run_id
    return Path(plan.runs) / plan.name / run_id


def submit(
    request: Request, before_start: Callable[[Rendered], None] | None = None
) -> tuple[RunPaths, Launch | None]:
    """Start a spec or a rendered folder, and return its run and its launch record at once.

    There is no launch when every point of a sweep has finished in an earlier run. `before_start` gets the
    rendered run. Submitting one folder again never starts a second job.
    Raises: JobspecError for errors of the spec, a secret that is not set, a scheduler that refuses, or an
    earlier run of this name whose submission was interrupted.
    """
    from jobspec import launchers
    from jobspec.rendering.run_folder import bring_py_spy

    if Path(request.spec).is_dir():
        return _submit_folder(request)
    here = None
    if request.here:
        request, here = _in_allocation(request)
    resolved = must_be_ready(request)
    if here is not None:
        resolved = _fitting(resolved, here)
    launchers.refuse_unsettled(_local_folder(resolved, "id").parent, request.allow)
    rendered = render_resolved(resolved, request)
    told = rendered if rendered.idle or here else _foreseen(rendered, resolved, request.allow)
    if before_start is not None:
        before_start(told)
    if rendered.idle:
        return rendered.run, None
    if resolved.ready_plan.container.image and resolved.cluster.profile.access.login == "here":
        bring_py_spy(Path(resolved.ready_plan.runs), rendered.run.root)
    return rendered.run, launchers.start(rendered.run, resolved.ready_plan, resolved.cluster.profile, here)


def _in_allocation(request: Request) -> tuple[Request, Allocation]:
    """The request with what the allocation has, where the spec leaves it open; it is never requeued.

    Raises: JobspecError for an allocation that takes no run of this user.
    """
    from jobspec.spec.bases import split_variant
    from jobspec.spec.yaml.document import read_text

    if request.content is None:  # a pipe can be read once
        text = read_text(Path(split_variant(str(request.spec))[0]), "job")
        request = replace(request, content=text.encode())
    loaded, site = load_on_site(request)
    held = _allocation(request.here, site.profile.name)
    sets = held.sets(loaded.data, counted=site.profile.slurm.gpus != "none")
    return replace(request, sets=(*sets, *request.sets)), held


def _allocation(ref: bool | str, cluster: str) -> Allocation:
    """That of this shell (True), of a job's number, or of a run on `cluster`."""
    from jobspec.launchers.access.here import LocalClient
    from jobspec.launchers.slurm import here
    from jobspec.runs.owner import own

    client = LocalClient()
    if ref is True:
        return here.of_shell(os.environ, client)
    if str(ref).isdecimal():
        return here.of_job(str(ref), client)
    return here.of_job(here.job_of(launched(own(open_store().find(str(ref)))), cluster), client)


def _fitting(resolved: Resolved, here: Allocation) -> Resolved:
    """With a warning for each key that does nothing in it. Raises: JobspecError where it is too small."""
    from jobspec.planning.placed import placed

    sweep, login = resolved.spec.sweep, resolved.cluster.profile.access.login
    in_turn = sweep is not None and sweep.mode == "one_allocation"
    found = (*here.lacks(resolved.ready_plan, login, in_turn), *here.unused(resolved.loaded.data))
    stop_on_errors(placed(finding, resolved.loaded) for finding in found)
    warnings = (item for item in resolved.findings if item.rule != "resources.no-time")  # it has its own
    return replace(resolved, findings=(*warnings, *(placed(finding, resolved.loaded) for finding in found)))


def _foreseen(rendered: Rendered, resolved: Resolved, allow: Sequence[str]) -> Rendered:
    """With what the queue says about the run, which `status` keeps.

    Raises: JobspecError where Slurm would refuse the job, or never start it.
    """
    from jobspec import launchers
    from jobspec.finding import allow as allow_rules
    from jobspec.runs.records import write_json

    forecast = launchers.foresee(resolved.ready_plan, resolved.cluster.profile)
    if forecast is None:
        return rendered
    with contextlib.suppress(OSError):  # a full disk: the launch record says so at once
        write_json(rendered.run.forecast, forecast.to_json())
    findings = allow_rules((*rendered.findings, *forecast.findings()), allow)
    stop_on_errors(findings)
    return replace(rendered, findings=findings)


def of_folder(request: Request) -> tuple[RunPaths, Request]:
    """A rendered folder, and its lock and site profile as a request.

    Raises: JobspecError for an option that would change it, or a folder that others may write.
    """
    from jobspec.runs.owner import own
    from jobspec.spec.overrides import refuse_for_folder

    refuse_for_folder(str(request.spec), request.sets, request.allow, request.rerun)
    run = own(open_store().find(str(request.spec)))
    site = None if request.cluster or not run.site.is_file() else run.site
    return run, replace(request, spec=run.lock, cluster_file=request.cluster_file or site)


def damaged_folder(run: RunPaths) -> tuple[Finding, ...]:
    """Why a rendered folder cannot be submitted as it is."""
    from jobspec.launchers.base import require_files
    from jobspec.rendering.run_folder import read_plan, refuse_moved

    try:
        plan = read_plan((run.points() or [run])[0])
        if plan.scheduler == "slurm":
            require_files(run, plan)
        refuse_moved(run)
    except JobspecError as problem:
        return tuple(problem.findings)
    return ()


def _submit_folder(request: Request) -> tuple[RunPaths, Launch | None]:
    from jobspec import launchers
    from jobspec.rendering.run_folder import read_plan, refuse_moved

    run, request = of_folder(request)
    points = run.points()
    if run.is_sweep and not points:
        return run, None
    plan = read_plan(points[0] if points else run)
    site = _profile_of(plan, request)
    if plan.scheduler == "local" or site.profile.access.login == "here":
        refuse_moved(run)
    here = None
    if request.here:
        here = _allocation(request.here, plan.cluster)
        in_turn = bool(points) and not read_plan(run).slurm.array
        stop_on_errors(here.lacks(plan, site.profile.access.login, in_turn))
    return run, launchers.start(run, plan, site.profile, here)


def _profile_of(plan: Plan, request: Request) -> LoadedCluster:
    """The profile that a folder was rendered for, whatever JOBSPEC_CLUSTER says.

    Raises: JobspecError for another profile: paths, options and scripts are made for one site.
    """
    loaded = profile(request.cluster or plan.cluster, request.cluster_file)
    if loaded.profile.name != plan.cluster:
        raise fail(
            "usage.arguments",
            f"the folder was rendered for `{plan.cluster}`, not for `{loaded.profile.name}`",
            fix=f"leave `--cluster` out, or render the spec for `{loaded.profile.name}`",
        )
    return loaded


def launched(run: RunPaths) -> Launch:
    """The run's launch record. Raises: JobspecError when it was rendered and never started."""
    launch = read_launch(run)
    if launch is None:
        raise fail(
            "run.not-started",
            f"run `{run.run_id}` was rendered and never started",
            fix=f"run `jobspec submit {run.root}`",
        )
    return launch


def status(run: RunPaths) -> JobStatus:
    """The state of a started run, by one question to its scheduler. With `state.final` the run has ended.

    The files of a run that has ended on a remote cluster are copied here.
    Raises: JobspecError when the run was never started, or the scheduler does not answer.
    """
    from jobspec import launchers

    launch = launched(run)
    answer = launchers.query([launch])[launch]
    if answer.state.final:
        launchers.sync(launch)
        launchers.record_final(run, answer)
    return answer


def judge(folder: str | Path) -> Verdict:
    """The verdict that the files of a run, or of one point of a sweep, support: Pass, Fail, Blocked or none.

    Never raises for missing evidence: what is not shown is not proved.
    """
    return judge_run(Path(folder))[1]


def judge_run(folder: Path, baseline: Path | None = None) -> tuple[Evidence, Verdict]:
    """The verdict of `judge`, beside a known-good run if one is named, with its evidence."""
    from jobspec.evidence.read import read_evidence
    from jobspec.judging.reproduction import judged

    return judged(read_evidence(folder), baseline)


def report_text(folder: str | Path, form: str = "text") -> str:
    """The report about a run's files: `form` is `text`, `summary`, `md`, `json`, `html` or `junit`.

    Raises: KeyError for another form.
    """
    from jobspec.report import render_report

    evidence, verdict = judge_run(Path(folder))
    return render_report(verdict, evidence, form)
