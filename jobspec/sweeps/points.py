"""One spec, many points: expand them, check each, and render them as one job.

Every point is a complete run directory below `points/<index>`; they share one `runtime.pyz` at the top.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from jobspec.finding import Finding, JobspecError, error, fail, warning
from jobspec.finding import allow as allow_rules
from jobspec.plan import Plan
from jobspec.planning.lookups import Lookups
from jobspec.planning.resolve import Resolved, resolve
from jobspec.sweeps.shared_folders import shared_folders

if TYPE_CHECKING:
    from jobspec.spec.find_site import LoadedCluster
    from jobspec.spec.job import JobSpec, Sweep
    from jobspec.spec.load import LoadedSpec

MAX_SHOWN = 20  # findings of points that are printed one by one


@dataclass(frozen=True)
class Point:
    """One point: its number in the array, its settings, and its spec without `sweep`."""

    index: int
    sets: Mapping[str, Any]
    loaded: LoadedSpec

    @property
    def label(self) -> str:
        return label(self.sets)


@dataclass(frozen=True)
class Pruned:
    """A point that `invalid: skip` leaves out, and the rule that it breaks."""

    sets: Mapping[str, Any]
    rule: str
    why: str


@dataclass(frozen=True)
class Checked:
    """Every point resolved and checked: the points that may run, the findings, and the points left out."""

    points: tuple[Point, ...]
    resolved: tuple[Resolved, ...]
    findings: tuple[Finding, ...]
    pruned: tuple[Pruned, ...] = ()


@dataclass(frozen=True)
class SweepOutcome:
    """All files of a sweep's run directory; `resolved` has one entry per point, in order.

    `finished` maps the number of a point to the folder of an earlier run that has finished it.
    """

    files: Mapping[str, bytes]
    findings: tuple[Finding, ...]
    points: tuple[Point, ...]
    resolved: tuple[Resolved, ...]
    pruned: tuple[Pruned, ...] = ()
    finished: Mapping[int, str] = field(default_factory=dict)


FindFinished = Callable[[Mapping[int, str]], Mapping[int, str]]
"""Points' keys -> folders of earlier runs that have finished them, both by the point's number."""


def label(sets: Mapping[str, Any]) -> str:
    """`train.seed=1, train.parallel.pp=2`."""
    return (
        ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sets.items())
        or "no change"
    )


def values(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """Each point's settings: combinations of `grid`, the last key fastest, then `list`, less `exclude`."""
    combinations = itertools.product(*sweep.grid.values()) if sweep.grid else ()
    grid = (dict(zip(sweep.grid, combination, strict=True)) for combination in combinations)
    for sets in itertools.chain(grid, sweep.points):
        if not any(_matches(sets, excluded) for excluded in sweep.exclude):
            yield dict(sets)


def _matches(sets: Mapping[str, Any], pattern: Mapping[str, Any]) -> bool:
    return bool(pattern) and all(key in sets and sets[key] == value for key, value in pattern.items())


def expand(loaded: LoadedSpec) -> list[Point]:
    """The sweep's points. With `invalid: skip`, points that the schema refuses are left out.

    Raises: JobspecError without a `sweep` or a point, and for a bad point when `invalid` is `error`.
    """
    points, findings, _ = _expand(loaded)
    if any(finding.is_error for finding in findings):
        raise JobspecError(*findings)
    return points


def _expand(loaded: LoadedSpec) -> tuple[list[Point], list[Finding], list[Pruned]]:
    from jobspec.spec.load import with_values

    sweep = loaded.spec.sweep
    if sweep is None:
        raise fail("sweep.none", "the spec has no `sweep`", fix="add `sweep: {grid: {train.seed: [1, 2]}}`")
    # Points start from the raw values: values of an interpolated spec would be filled in twice.
    start = replace(loaded, interpolated=False)
    raw = msgspec.convert(loaded.raw["sweep"], type(sweep))
    points: list[Point] = []
    findings: list[Finding] = []
    pruned: list[Pruned] = []
    for sets in values(raw):
        try:
            points.append(Point(len(points), sets, with_values(start, sets, f"sweep point {label(sets)}")))
        except JobspecError as problem:
            findings += _left_out(problem.findings, sets, sweep)
            pruned += _pruned(problem.findings, sets)
    if not points and not findings:
        findings.append(
            error("sweep.empty", "the sweep has no points", fix="give `grid` or `list`", path="sweep")
        )
    return points, findings, pruned


def _pruned(problems: Sequence[Finding], sets: Mapping[str, Any]) -> Iterator[Pruned]:
    first = next(finding for finding in problems if finding.is_error)
    yield Pruned(sets, first.rule, first.what)


def _left_out(problems: Sequence[Finding], sets: Mapping[str, Any], sweep: Sweep) -> Iterator[Finding]:
    """A bad point's errors, or one warning about them when `sweep.invalid` is `skip`."""
    errors = [finding for finding in problems if finding.is_error]
    if sweep.invalid == "skip":
        yield warning(
            "sweep.skipped",
            f"the point {label(sets)} is left out: {errors[0].what}",
            why=f"`sweep.invalid` is `skip`; the rule is `{errors[0].rule}`",
            fix=errors[0].fix,
            path="sweep",
        )
    else:
        yield from (replace(finding, what=f"at {label(sets)}: {finding.what}") for finding in errors)


def check_sweep(
    loaded: LoadedSpec,
    cluster: LoadedCluster,
    *,
    allow: Sequence[str] = (),
    lookups: Lookups | None = None,
) -> tuple[tuple[Point, ...], tuple[Resolved, ...], tuple[Finding, ...]]:
    """The points that may run, resolved and checked, and the findings about all points."""
    checked = check_points(loaded, cluster, allow=allow, lookups=lookups)
    return checked.points, checked.resolved, checked.findings


def check_points(
    loaded: LoadedSpec,
    cluster: LoadedCluster,
    *,
    allow: Sequence[str] = (),
    fetch: bool = False,
    lookups: Lookups | None = None,
) -> Checked:
    """`check_sweep`, with the points that are left out. `fetch` clones and freezes their checkouts."""
    expanded, findings, pruned = _expand(loaded)
    sweep = loaded.spec.sweep
    if sweep is None:
        raise ValueError("`_expand` refuses a spec without a sweep")
    lookups = lookups or Lookups()
    points: list[Point] = []
    resolved: list[Resolved] = []
    for point in expanded:
        outcome = resolve(point.loaded, cluster, allow=allow, lookups=lookups, fetch=fetch)
        if outcome.plan is None or any(finding.is_error for finding in outcome.findings):
            findings += _left_out(outcome.problems, point.sets, sweep)
            pruned += _pruned(outcome.problems, point.sets)
            continue
        points.append(replace(point, index=len(points)))
        resolved.append(outcome)
        findings += outcome.findings
    if points or not any(finding.is_error for finding in findings):
        findings += _over_all(points, resolved, cluster, sweep)
        findings += allow_rules(shared_folders(_trained(points, resolved)), allow)
    return Checked(tuple(points), tuple(resolved), _shown(findings), tuple(pruned))


def _over_all(
    points: Sequence[Point], resolved: Sequence[Resolved], cluster: LoadedCluster, sweep: Sweep
) -> Iterator[Finding]:
    if not points:
        yield error(
            "sweep.empty",
            "no point of the sweep can run",
            fix="see the points that are left out",
            path="sweep",
        )
        return
    most = cluster.profile.limits.max_array
    if most and len(points) > most and sweep.mode == "array":
        yield error(
            "sweep.max-array",
            f"the sweep has {len(points)} points, `{cluster.profile.name}` allows arrays of {most}",
            why="`limits.max_array` of the site profile",
            fix="split the sweep, or set `sweep.mode` to `one_allocation`",
            path="sweep",
        )
    plans = [item.plan for item in resolved if item.plan is not None]
    for point, plan in zip(points, plans, strict=True):
        if _allocation(plan) != _allocation(plans[0]):
            yield error(
                "sweep.resources",
                f"the point {point.label} asks for another allocation than {points[0].label}",
                why="all points of a sweep get the same nodes, GPUs, time and options",
                fix="submit points with other `resources` in a spec of their own",
                path="sweep",
            )
            return


def _trained(points: Sequence[Point], resolved: Sequence[Resolved]) -> Iterator[tuple[str, JobSpec, Plan]]:
    for point, item in zip(points, resolved, strict=True):
        yield point.label, item.spec, item.ready_plan


def _allocation(plan: Plan) -> tuple[object, ...]:
    return (plan.nodes, plan.gpus_per_node, plan.groups, plan.slurm, plan.scheduler, plan.passed)


def _shown(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Each finding once. Behind the first `MAX_SHOWN` errors, one finding counts the others."""
    unique = list(dict.fromkeys(findings))
    errors = [finding for finding in unique if finding.is_error]
    rest = [finding for finding in unique if not finding.is_error]
    if len(errors) <= MAX_SHOWN:
        return (*errors, *rest)
    more = error(
        "sweep.more",
        f"{len(errors) - MAX_SHOWN} more errors of other points",
        fix="correct these first",
        path="sweep",
    )
    return (*errors[:MAX_SHOWN], more, *rest)


def render_sweep(
    loaded: LoadedSpec,
    cluster: LoadedCluster,
    run_id: str,
    run_dir: str,
    *,
    allow: Sequence[str] = (),
    find_finished: FindFinished | None = None,
) -> SweepOutcome:
    """The run directory of a whole sweep. With errors among the findings there are no files.

    Points that `find_finished` knows get no folder: their results lie in the earlier run.
    """
    from jobspec.rendering.files import render, render_array

    lookups = Lookups()
    checked = check_points(loaded, cluster, allow=allow, fetch=True, lookups=lookups)
    points, resolved, sweep = checked.points, checked.resolved, loaded.spec.sweep
    if sweep is None or any(finding.is_error for finding in checked.findings):
        return SweepOutcome({}, checked.findings, points, resolved, checked.pruned)
    keys = {point.index: point_key(item) for point, item in zip(points, resolved, strict=True)}
    finished = find_finished(keys) if find_finished is not None else {}
    due = [point.index for point in points if point.index not in finished]
    base = resolve(loaded, cluster, allow=allow, fetch=True, lookups=lookups)
    in_turn = sweep.mode == "one_allocation"
    files = dict(render_array(base, due, run_id, run_dir, resolved[0], in_turn=in_turn))
    files["points.json"] = _index(points, keys, finished, checked.pruned)
    for index in due:
        folder = f"points/{index}"
        made = render(resolved[index], f"{run_id}.{index}", f"{run_dir}/{folder}", run_dir)
        files.update((f"{folder}/{name}", text) for name, text in made.items())
    return SweepOutcome(files, checked.findings, points, resolved, checked.pruned, finished)


def point_key(resolved: Resolved) -> str:
    """The digest of everything that a point's result depends on: points with one key are the same run.

    The plan lacks the patch of uncommitted changes; the lock has it. A branch's name says nothing about code.
    """
    from jobspec.planning.lock import lock_facts
    from jobspec.rendering.files import plan_json

    plan = resolved.plan
    if plan is None:
        raise ValueError("a point with errors has no key")
    facts = lock_facts(resolved)
    for repo in facts.get("repos", {}).values():
        for name in ("branch", "bundle", "bundle_sha256"):  # the commit says what is in it
            repo.pop(name, None)
    plan = replace(plan, repos=tuple(replace(repo, branch="", on_change="") for repo in plan.repos))
    pinned = json.dumps(facts, sort_keys=True, default=str).encode()
    return hashlib.sha256(plan_json(plan) + pinned).hexdigest()


def _index(
    points: Sequence[Point], keys: Mapping[int, str], finished: Mapping[int, str], pruned: Sequence[Pruned]
) -> bytes:
    """`points.json`: the settings of each point, the folder of a finished one, and the points left out."""
    rows = [
        {"index": point.index, "sets": dict(point.sets), "key": keys[point.index]}
        | ({"finished": finished[point.index]} if point.index in finished else {})
        for point in points
    ]
    left_out = [{"sets": dict(item.sets), "rule": item.rule, "why": item.why} for item in pruned]
    return (
        json.dumps({"v": 1, "points": rows, "pruned": left_out}, indent=2, ensure_ascii=False) + "\n"
    ).encode()
