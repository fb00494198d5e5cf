"""`metrics.baseline`: the known-good run that the finished one is compared with."""

from __future__ import annotations

from pathlib import Path

from jobspec.disk import exists
from jobspec.finding import Finding, JobspecError, error
from jobspec.plan import BaselinePlan, TolerancePlan
from jobspec.planning.assemble import Resolution
from jobspec.planning.paths import absolute
from jobspec.runs.paths import RunPaths
from jobspec.runs.store import RunStore, known_folders


def known_good(resolution: Resolution) -> tuple[BaselinePlan | None, tuple[Finding, ...]]:
    """The baseline by its absolute place, and an error where nothing is there."""
    metrics = resolution.spec.metrics
    if not metrics.baseline:
        return None, ()
    place = absolute(metrics.baseline, resolution.base, resolution.env)
    if not exists(place):
        runs = RunStore(Path(resolution.profile.paths.runs), *known_folders(resolution.env))
        try:
            place = str(runs.find(metrics.baseline).root)
        except JobspecError as problem:
            what = f"`{metrics.baseline}` is no file, no folder and no run"
            fix = "name a file of metrics, or a run by its folder or id (`jobspec status`)"
            why = problem.findings[0].what
            return None, (error("metrics.baseline", what, why, fix, path="metrics.baseline"),)
    wrong = _no_run(Path(place))
    if wrong:
        what, fix = f"`{metrics.baseline}` is {wrong}", "name a file of metrics, or one run with metrics"
        return None, (error("metrics.baseline", what, fix=fix, path="metrics.baseline"),)
    tolerances = (
        TolerancePlan(item.metric, item.within, item.direction or "", item.from_step, item.to_step)
        for item in metrics.tolerances
    )
    return BaselinePlan(place, tuple(tolerances)), ()


def _no_run(place: Path) -> str:
    """Why a folder has no metrics of one run; empty for one that may have."""
    points = len(RunPaths(place).points())
    if points:
        return f"a sweep of {points} points: name one, such as `{place}/points/0`"
    try:
        return "an empty folder" if place.is_dir() and not any(place.iterdir()) else ""
    except OSError as problem:
        return f"a folder that cannot be read: {problem.strerror}"
