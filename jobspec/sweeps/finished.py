"""A sweep's run directory, read again: what each point set, where it ran, and whether it has finished.

A point has finished when its own evidence gives it the verdict Pass or Fail. One that was Blocked, or left no
evidence, says nothing about what it set, and is run again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobspec.finding import JobspecError, fail
from jobspec.runs.paths import RunPaths
from jobspec.runtime.base.run_files import read_text
from jobspec.verdict import Result

FINISHED = (Result.PASS, Result.FAIL)


@dataclass(frozen=True)
class PointRecord:
    """One point as `points.json` has it. `run` is where its files lie, in an earlier run if `reused`."""

    index: int
    sets: Mapping[str, Any]
    run: RunPaths
    key: str = ""
    reused: str = ""  # the earlier run's id


@dataclass(frozen=True)
class SweepRecord:
    """`points.json`. `pruned` has what each left-out point set, the rule that it breaks, and why."""

    points: tuple[PointRecord, ...] = ()
    pruned: tuple[tuple[Mapping[str, Any], str, str], ...] = field(default=())


def read_points(run: RunPaths) -> SweepRecord:
    """The points of a sweep. Raises: JobspecError when `points.json` cannot be read."""
    try:
        data = json.loads(read_text(run.points_index))
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
    """Where runs below `folder` have finished points with these keys: relative to a run beside them.

    The newest run counts first. Points of sweeps that cannot be read are not finished.
    """
    wanted = {key: index for index, key in keys.items()}
    found: dict[int, str] = {}
    for key, point in _earlier(folder):
        index = wanted.get(key)
        if index is not None and index not in found and _result(point) in FINISHED:
            found[index] = f"../{point.root.parent.parent.name}/points/{point.run_id}"
    return found


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


def _result(point: RunPaths) -> Result:
    from jobspec.evidence.read import read_evidence
    from jobspec.judging.judge import judge

    return judge(read_evidence(point.root)).result if _has_ended(point) else Result.NOTHING_RAN


def _has_ended(point: RunPaths) -> bool:
    """What a point that goes on has logged may look like its failure."""
    attempts = point.attempts()
    ends = [point.attempt(number) / "results.json" for number in attempts[-1:]]
    return bool(attempts) and any(path.is_file() for path in (*ends, point.exit_file, point.scheduler))
