"""The points of a sweep's run directory: their settings, their folders, and whether they have finished.

A point has finished when its own evidence gives the verdict Pass or Fail, or says that its settings do not
fit the GPUs' memory. A point that was Blocked by anything else, or left no evidence, says nothing about its
settings and is run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobspec.finding import JobspecError, fail
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import read_results
from jobspec.runtime.base.run_files import parse_json, read_text
from jobspec.verdict import Result

FINISHED = (Result.PASS, Result.FAIL)
TOO_LARGE = "gpu-memory"  # the class of a cause that the settings are


@dataclass(frozen=True)
class PointRecord:
    """One point of `points.json`. `run` has its files; they lie in an earlier run if `reused`."""

    index: int
    sets: Mapping[str, Any]
    run: RunPaths
    key: str = ""
    reused: str = ""  # the earlier run's id


@dataclass(frozen=True)
class SweepRecord:
    """`points.json`. `pruned` has the settings of each left-out point, the rule that it breaks, and why."""

    points: tuple[PointRecord, ...] = ()
    pruned: tuple[tuple[Mapping[str, Any], str, str], ...] = field(default=())


def read_points(run: RunPaths) -> SweepRecord:
    """The points of a sweep. Raises: JobspecError when `points.json` cannot be read."""
    try:
        data = parse_json(read_text(run.points_index))
        points = tuple(_record(run, row) for row in data["points"])
        pruned = tuple((row["sets"], row["rule"], row["why"]) for row in data.get("pruned", ()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise fail(
            "run.damaged-file",
            "`points.json` cannot be read",
            why=str(problem) or type(problem).__name__,
            fix="render the sweep again",
            file=str(run.points_index),
        ) from problem
    return SweepRecord(points, pruned)


def _record(run: RunPaths, row: Mapping[str, Any]) -> PointRecord:
    index, where = int(row["index"]), str(row.get("finished", ""))
    folder = run.root / where if where else run.points_dir / str(index)
    reused = Path(where).parent.parent.name if where else ""
    return PointRecord(index, dict(row["sets"]), RunPaths(folder), str(row.get("key", "")), reused)


def finished_points(folder: Path, keys: Mapping[int, str]) -> dict[int, str]:
    """The folders of finished points with these keys, in runs below `folder`, by a point's number.

    A folder is relative to a run beside the earlier one. The newest run counts first. An unreadable sweep has
    no finished points.
    """
    numbers = {key: index for index, key in keys.items()}
    folders: dict[int, str] = {}
    for key, point in _earlier(folder):
        index = numbers.get(key)
        if index is not None and index not in folders and _has_finished(point):
            folders[index] = f"../{point.root.parent.parent.name}/points/{point.run_id}"
    return folders


def _earlier(folder: Path) -> Iterator[tuple[str, RunPaths]]:
    for index in sorted(folder.glob("*/points.json"), reverse=True):
        run = RunPaths(index.parent)
        if not run.standard:
            continue
        try:
            record = read_points(run)
        except JobspecError:
            continue
        yield from ((point.key, point.run) for point in record.points if point.key and not point.reused)


def _has_finished(point: RunPaths) -> bool:
    from jobspec.evidence.read import read_evidence
    from jobspec.judging.baseline import judge_beside

    if not _has_ended(point):
        return False
    verdict = judge_beside(read_evidence(point.root))[1]
    cause = verdict.first_cause
    return verdict.result in FINISHED or (cause is not None and cause.kind == TOO_LARGE)


def _has_ended(point: RunPaths) -> bool:
    """Whether a point has ended: the logs of a running point may look like a failure."""
    attempts = point.attempts()
    if not attempts:
        return False
    if point.exit_file.is_file() or point.scheduler.is_file():
        return True
    if not (point.attempt(attempts[-1]) / "results.json").is_file():
        return False
    try:
        return read_results(point) is not None
    except JobspecError:  # damaged: the judge says so
        return True
