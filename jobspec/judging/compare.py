"""The differences between runs: settings, phases and metrics. Pure but for reading run directories."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from jobspec.evidence.read import read_evidence
from jobspec.finding import fail
from jobspec.judging.baseline import judge_beside
from jobspec.metrics import Row
from jobspec.metrics.envelope import FEW_POINTS, envelope
from jobspec.runs.paths import RunPaths
from jobspec.runtime.base.run_files import read_text

ABSENT = "-"
BARS, SPARK_WIDTH = "▁▂▃▄▅▆▇█", 24


@dataclass(frozen=True)
class Side:
    """One run as it is compared: its pinned spec flattened, its verdict, its phases and its metrics."""

    run_id: str
    settings: Mapping[str, str]
    result: str
    phases: Mapping[str, float]  # seconds
    metrics: Mapping[str, tuple[float, ...]]  # by step
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)  # step, finite value


@dataclass(frozen=True)
class Comparison:
    """Rows (name, one value per run). `settings` holds only differences; the others hold what any run has."""

    runs: tuple[str, ...]
    results: tuple[str, ...]
    settings: tuple[tuple[str, tuple[str, ...]], ...]
    phases: tuple[tuple[str, tuple[float | None, ...]], ...]
    metrics: tuple[tuple[str, tuple[Mapping[str, float] | None, ...]], ...]
    curves: tuple[tuple[str, tuple[Sequence[tuple[float, float]], ...]], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "runs": list(self.runs),
            "results": list(self.results),
            "settings": {name: list(values) for name, values in self.settings},
            "phases_s": {name: list(values) for name, values in self.phases},
            "metrics": {name: list(values) for name, values in self.metrics},
            "curves": {name: [envelope(points, FEW_POINTS) for points in rows] for name, rows in self.curves},
        }


def read_side(run: RunPaths) -> Side:
    """The run as it is compared. Raises: JobspecError when the run has no readable lock."""
    evidence = read_evidence(run.root)
    attempt = evidence.last
    phases = attempt.results.phases if attempt is not None and attempt.results is not None else ()
    table = evidence.metrics
    return Side(
        run_id=run.run_id,
        settings=_read_lock(run.lock),
        result=str(judge_beside(evidence)[1].result),
        phases={phase.phase: phase.end - phase.start for phase in phases if phase.end},
        metrics={name: tuple(table.values(name)) for name in table.metrics},
        curves={name: _curve(table.series(name)) for name in table.metrics},
    )


def _read_lock(path: Path) -> dict[str, str]:
    try:
        data = yaml.safe_load(read_text(path))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as problem:
        raise fail(
            "compare.no-lock",
            "the run has no readable lock",
            why=str(problem),
            fix="compare runs that jobspec rendered",
            file=str(path),
        ) from problem
    return dict(flatten(data))


def flatten(data: Any, prefix: str = "") -> Iterable[tuple[str, str]]:
    """Dotted keys and JSON texts of every leaf.

    >>> dict(flatten({"a": {"b": 1}, "c": [True]}))
    {'a.b': '1', 'c[0]': 'true'}
    """
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from flatten(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(data, list) and data:
        for index, value in enumerate(data):
            yield from flatten(value, f"{prefix}[{index}]")
    else:
        yield prefix, data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)


def compare(sides: Sequence[Side]) -> Comparison:
    """Line up any number of runs."""
    settings = []
    for name in _names(side.settings for side in sides):
        values = tuple(side.settings.get(name, ABSENT) for side in sides)
        if len(set(values)) > 1:
            settings.append((name, values))
    return Comparison(
        runs=tuple(side.run_id for side in sides),
        results=tuple(side.result for side in sides),
        settings=tuple(settings),
        phases=tuple(
            (name, tuple(side.phases.get(name) for side in sides)) for name in _names(s.phases for s in sides)
        ),
        metrics=tuple(
            (name, tuple(_summary(side.metrics.get(name, ())) for side in sides))
            for name in _names(side.metrics for side in sides)
        ),
        curves=tuple(
            (name, tuple(side.curves.get(name, ()) for side in sides))
            for name in _names(side.metrics for side in sides)
        ),
    )


def _curve(rows: Sequence[Row]) -> Sequence[tuple[float, float]]:
    return [(row.step, row.value) for row in rows if row.step is not None and math.isfinite(row.value)]


def sparks(curves: Sequence[Sequence[tuple[float, float]]]) -> tuple[str, ...]:
    """Each curve as a line of bars, all over the same steps and on the same scale.

    >>> sparks([[(1, 0.0), (2, 1.0)], [(2, 0.5)], []])
    ('▁█', ' ▅', '')
    """
    points = [point for curve in curves for point in curve]
    if not points:
        return ("",) * len(curves)
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    width = int(min(SPARK_WIDTH, last - first + 1))
    return tuple(_spark(curve, first, (last - first + 1) / width, low, high, width) for curve in curves)


def _spark(
    curve: Sequence[tuple[float, float]], first: float, step: float, low: float, high: float, width: int
) -> str:
    columns: list[list[float]] = [[] for _ in range(width)]
    for x, y in curve:
        columns[min(width - 1, int((x - first) / step))].append(y)
    top, span = len(BARS) - 1, high - low or 1.0
    marks = (BARS[round(top * (math.fsum(c) / len(c) - low) / span)] if c else " " for c in columns)
    return "".join(marks).rstrip()


def _names(sides: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names in the order in which the runs have them, each once."""
    return list(dict.fromkeys(name for side in sides for name in side))


def _summary(values: Sequence[float]) -> Mapping[str, float] | None:
    if not values:
        return None
    return {"first": values[0], "last": values[-1], "min": min(values), "max": max(values)}
