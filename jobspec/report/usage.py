"""What the GPUs of each node did while the phases ran, and how fast the run was: lines over time."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from statistics import fmean

from jobspec.evidence.evidence import Attempt, Evidence
from jobspec.metrics import Row
from jobspec.metrics.envelope import Point, envelope
from jobspec.metrics.names import TOKENS, find_metric
from jobspec.report.plots import TIME, Line, Plot

SAMPLE = re.compile(r"gpu/\d+/(?P<kind>memory_gib|busy_percent)")  # source: runtime/node/gpu_sampler.py
SAMPLES_FILE = re.compile(r"gpu-(?P<node>.+)\.jsonl")
MAX_LINES = 16
MAX_POINTS = 10_000  # of one line: half a day of samples
Samples = dict[str, dict[float, list[float]]]  # node -> time -> a value for each GPU


def usage_plots(evidence: Evidence, start: float, end: float) -> tuple[Plot, ...]:
    """Plots on the scale of a time line from `start` to `end`; none where nothing was sampled."""
    several = len(evidence.attempts) > 1
    busy: list[Line] = []
    memory: list[Line] = []
    speed: list[Line] = []
    for attempt in evidence.attempts:
        prefix = f"{attempt.number}. " if several else ""
        for node, samples in _samples(attempt, "busy_percent").items():
            busy.append(_line(prefix + node, ((t, fmean(v)) for t, v in samples.items()), start, end))
        for node, samples in _samples(attempt, "memory_gib").items():
            memory.append(_line(prefix + node, ((t, max(v)) for t, v in samples.items()), start, end))
        name = find_metric(TOKENS, evidence.plan.expect.metric_keys, attempt.metrics.by_metric)
        speed.append(_line(f"{prefix}{TOKENS}", _timed(attempt.metrics.series(name)), start, end))
    plots = (
        _plot("GPUs busy, percent (mean of a node's GPUs)", _idlest(busy), start, end),
        _plot("GPU memory, GiB (fullest GPU of a node)", _idlest(memory), start, end),
        _plot(TOKENS, [line for line in speed if line.points], start, end),
    )
    return tuple(plot for plot in plots if plot.lines)


def _samples(attempt: Attempt, kind: str) -> Samples:
    found: Samples = {}
    for row in attempt.metrics.rows:
        sample, file = SAMPLE.fullmatch(row.metric), SAMPLES_FILE.fullmatch(PurePosixPath(row.source).name)
        if (
            sample
            and file
            and sample["kind"] == kind
            and row.wall_time is not None
            and math.isfinite(row.value)
        ):
            found.setdefault(file["node"], {}).setdefault(row.wall_time, []).append(row.value)
    return dict(sorted(found.items()))


def _timed(rows: Iterable[Row]) -> Iterator[Point]:
    yield from ((row.wall_time, row.value) for row in rows if row.wall_time and math.isfinite(row.value))


def _line(name: str, points: Iterable[Point], start: float, end: float) -> Line:
    """The points within the time line, by seconds since its start."""
    inside = sorted((time - start, value) for time, value in points if start <= time <= end)
    return Line(name, tuple(envelope(inside, MAX_POINTS)))


def _idlest(lines: list[Line]) -> list[Line]:
    """With many nodes the ones that did least: the whole run waits for them."""
    lines = [line for line in lines if line.points]
    if len(lines) <= MAX_LINES:
        return lines
    least = sorted(lines, key=lambda line: fmean(value for _, value in line.points))[:MAX_LINES]
    return [line for line in lines if line in least]


def _plot(name: str, lines: list[Line], start: float, end: float) -> Plot:
    return Plot(name, tuple(lines), along=TIME, span=(0.0, max(end - start, 0.1)))
