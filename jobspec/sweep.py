"""One spec, many points: expand them, check each, and render them as one job array.

Every point is a complete run directory below `points/<index>`; they share one `runtime.pyz` at the top.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from jobspec.finding import Finding, JobspecError, error, fail, warning
from jobspec.plan import Plan
from jobspec.resolve import Lookups, Resolved, resolve

if TYPE_CHECKING:
    from jobspec.cluster import LoadedCluster
    from jobspec.spec.load import LoadedSpec
    from jobspec.spec.model import Sweep

MAX_SHOWN = 20  # findings of points that are printed one by one


@dataclass(frozen=True)
class Point:
    """One point: its place in the array, the keys it sets, and its spec without `sweep`."""

    index: int
    sets: Mapping[str, Any]
    loaded: LoadedSpec

    @property
    def label(self) -> str:
        return label(self.sets)


@dataclass(frozen=True)
class SweepOutcome:
    """All files of a sweep's run directory; `resolved` has one entry per point, in order."""

    files: Mapping[str, bytes]
    findings: tuple[Finding, ...]
    points: tuple[Point, ...]
    resolved: tuple[Resolved, ...]


def label(sets: Mapping[str, Any]) -> str:
    """`train.seed=1, train.parallel.pp=2`."""
    return (
        ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sets.items())
        or "no change"
    )


def values(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """What each point sets: all combinations of `grid`, the last key fastest, then `list`, less `exclude`."""
    grid = [dict(zip(sweep.grid, chosen, strict=True)) for chosen in itertools.product(*sweep.grid.values())]
    for sets in [*(grid if sweep.grid else []), *sweep.points]:
        if not any(_matches(sets, excluded) for excluded in sweep.exclude):
            yield dict(sets)


def _matches(sets: Mapping[str, Any], pattern: Mapping[str, Any]) -> bool:
    return bool(pattern) and all(key in sets and sets[key] == value for key, value in pattern.items())


def expand(loaded: LoadedSpec) -> list[Point]:
    """The sweep's points. With `invalid: skip`, points that the schema refuses are left out.

    Raises: JobspecError when there is no `sweep` or no point, or a point is bad and `invalid` is `error`.
    """
    points, findings = _expand(loaded)
    if any(finding.is_error for finding in findings):
        raise JobspecError(*findings)
    return points


def _expand(loaded: LoadedSpec) -> tuple[list[Point], list[Finding]]:
    from jobspec.spec.load import with_values

    sweep = loaded.spec.sweep
    if sweep is None:
        raise fail("sweep.none", "the spec has no `sweep`", fix="add `sweep: {grid: {train.seed: [1, 2]}}`")
    # Points are made anew from the raw values: those of an interpolated spec would be filled in twice.
    start = replace(loaded, interpolated=False)
    raw = msgspec.convert(loaded.raw["sweep"], type(sweep))
    points: list[Point] = []
    findings: list[Finding] = []
    for sets in values(raw):
        try:
            points.append(Point(len(points), sets, with_values(start, sets, f"sweep point {label(sets)}")))
        except JobspecError as problem:
            findings += _left_out(problem.findings, sets, sweep)
    if not points and not findings:
        findings.append(
            error("sweep.empty", "the sweep has no points", fix="give `grid` or `list`", path="sweep")
        )
    return points, findings


def _left_out(problems: Sequence[Finding], sets: Mapping[str, Any], sweep: Sweep) -> Iterator[Finding]:
    """A bad point's findings: all of them, or one warning where the sweep says to skip it."""
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
    loaded: LoadedSpec, cluster: LoadedCluster, *, level: str | None = None, allow: Sequence[str] = ()
) -> tuple[tuple[Point, ...], tuple[Resolved, ...], tuple[Finding, ...]]:
    """Every point resolved and checked, those that may run, and what is to say about all of them."""
    expanded, findings = _expand(loaded)
    sweep = loaded.spec.sweep
    if sweep is None:
        raise ValueError("`_expand` refuses a spec without a sweep")
    lookups = Lookups()
    points: list[Point] = []
    resolved: list[Resolved] = []
    for point in expanded:
        found = resolve(point.loaded, cluster, level=level, allow=allow, lookups=lookups)
        if found.plan is None or any(finding.is_error for finding in found.findings):
            findings += _left_out(found.findings, point.sets, sweep)
            continue
        points.append(replace(point, index=len(points)))
        resolved.append(found)
        findings += found.findings
    if points or not any(finding.is_error for finding in findings):
        findings += _over_all(points, resolved, cluster)
    return tuple(points), tuple(resolved), _shown(findings)


def _over_all(
    points: Sequence[Point], resolved: Sequence[Resolved], cluster: LoadedCluster
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
    if most and len(points) > most:
        yield error(
            "sweep.max-array",
            f"the sweep has {len(points)} points, `{cluster.profile.name}` allows arrays of {most}",
            why="`limits.max_array` of the site profile",
            fix="split the sweep",
            path="sweep",
        )
    plans = [found.plan for found in resolved if found.plan is not None]
    for point, plan in zip(points, plans, strict=True):
        if _allocation(plan) != _allocation(plans[0]):
            yield error(
                "sweep.resources",
                f"the point {point.label} asks for another allocation than {points[0].label}",
                why="all tasks of a job array get the same nodes, GPUs, time and options",
                fix="submit points with other `resources` as a spec of their own",
                path="sweep",
            )
            return


def _allocation(plan: Plan) -> tuple[object, ...]:
    return (plan.nodes, plan.gpus_per_node, plan.slurm, plan.scheduler, plan.secrets)


def _shown(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Each finding once; of the points' errors the first `MAX_SHOWN` and how many more there are."""
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
    level: str | None = None,
    allow: Sequence[str] = (),
) -> SweepOutcome:
    """The run directory of a whole sweep. With errors among the findings there are no files."""
    from jobspec.render import render, render_array

    points, resolved, findings = check_sweep(loaded, cluster, level=level, allow=allow)
    if any(finding.is_error for finding in findings):
        return SweepOutcome({}, findings, points, resolved)
    base = resolve(loaded, cluster, level=level, allow=allow)
    files = dict(render_array(base, len(points), run_id, run_dir, resolved[0]))
    files["points.json"] = _index(points)
    for point, found in zip(points, resolved, strict=True):
        folder = f"points/{point.index}"
        made = render(found, f"{run_id}.{point.index}", f"{run_dir}/{folder}", run_dir)
        files.update((f"{folder}/{name}", text) for name, text in made.items())
    return SweepOutcome(files, findings, points, resolved)


def _index(points: Sequence[Point]) -> bytes:
    """`points.json`: what each task of the array sets, for people and for the comparison of points."""
    rows = [{"index": point.index, "sets": dict(point.sets)} for point in points]
    return (json.dumps({"v": 1, "points": rows}, indent=2, ensure_ascii=False) + "\n").encode()
