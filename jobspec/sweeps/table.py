"""The results of a sweep as one table: the settings, the speed and the status of each point.

The table comes from the points' own evidence alone: the same files give the same table.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from jobspec.evidence.evidence import Attempt, Evidence
from jobspec.finding import JobspecError
from jobspec.metrics.envelope import Point, envelope, finite_points
from jobspec.metrics.names import PEAK_MEMORY, STEP_TIME, TOKENS, find_metric
from jobspec.metrics.table import prefer
from jobspec.runs.paths import RunPaths
from jobspec.runtime.base.run_files import read_text
from jobspec.sweeps.best import Rule
from jobspec.sweeps.finished import PointRecord, read_points
from jobspec.units import is_date
from jobspec.verdict import Result, Verdict

OK, OOM, FAIL, BLOCKED = "OK", "OOM", "FAIL", "BLOCKED"
RUNNING, NOT_RUN, INVALID = "RUNNING", "NOT RUN", "INVALID"
MEMORY_KINDS = frozenset({"gpu-memory", "host-memory", "driver.out-of-memory", "OUT_OF_MEMORY"})
GPU_MEMORY = re.compile(r"(?:^|/)gpu/\d+/memory_gib$")
MAX_POINTS = 10_000  # of one point's curve: a page has those of all points
GIB_PER_GB = 1e9 / 2**30


@dataclass(frozen=True)
class SweepRow:
    """One point. Speeds are medians over its steps without the first, which warms up; None: not measured.

    `reused` is the id of the earlier run that the result is from, `page` the point's own report, relative to
    the sweep's. `metrics` are the last values of the verdict's figures, `score` is the value by `--best`,
    `start` and `seconds` are the point's own time. `curves` are those figures and the rule's over steps.
    """

    index: int
    sets: Mapping[str, Any]
    status: str
    tokens_per_s: float | None = None
    step_s: float | None = None
    peak_gib: float | None = None
    steps: int = 0
    reason: str = ""
    result: str = ""
    exit_code: int = 0
    reused: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    score: float | None = None
    page: str = ""
    start: float = 0.0
    seconds: float = 0.0
    curves: Mapping[str, Sequence[Point]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "point": self.index,
            "sets": dict(self.sets),
            "status": self.status,
            "result": self.result,
            "exit_code": self.exit_code,
            "tokens_per_s": self.tokens_per_s,
            "step_s": self.step_s,
            "peak_gib": self.peak_gib,
            "steps": self.steps,
            "reason": self.reason,
            "reused": self.reused,
            "metrics": dict(self.metrics),
            "score": self.score,
            "page": self.page,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class SweepTable:
    """All points in order, the points left out before submission, and the rule for the best passed point."""

    run_id: str
    name: str
    rows: tuple[SweepRow, ...]
    pruned: tuple[SweepRow, ...] = ()
    rule: Rule | None = None

    @property
    def best(self) -> SweepRow | None:
        """The passed point that is best by the rule.

        Without a rule it is the one with the most tokens per second, else with the shortest step.
        """
        passed = [row for row in self.rows if row.status == OK]
        if self.rule is not None:
            scored = [row for row in passed if row.score is not None]
            choose = min if self.rule.lowest else max
            return choose(scored, key=lambda row: row.score or 0.0) if scored else None
        fast = [row for row in passed if row.tokens_per_s is not None]
        if fast:
            return max(fast, key=lambda row: row.tokens_per_s or 0.0)
        timed = [row for row in passed if row.step_s is not None]
        return min(timed, key=lambda row: row.step_s or 0.0) if timed else None

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key that a point sets, in the order of first use."""
        return tuple(dict.fromkeys(key for row in (*self.rows, *self.pruned) for key in row.sets))

    @property
    def start(self) -> float:
        """When the first point started, in seconds since the epoch; 0 before."""
        return min((row.start for row in self.rows if row.start), default=0.0)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every metric that a point has a figure of, in the order of first use."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.metrics))

    @property
    def exit_code(self) -> int:
        """The exit code of the worst point; a point that has not run counts as well."""
        codes = {row.exit_code for row in self.rows}
        return next((code for code in (1, 3, 4) if code in codes), 0)


def sweep_table(
    run: RunPaths, judged: Mapping[int, tuple[Evidence, Verdict]], rule: Rule | None = None
) -> SweepTable:
    """The table of a sweep's run directory. `judged` has the evidence and verdict of each point by number.

    Raises: JobspecError when `points.json` cannot be read.
    """
    record = read_points(run)
    rows = tuple(_row(run, point, *judged[point.index], rule) for point in record.points)
    pruned = tuple(
        SweepRow(-1, sets, INVALID, reason=f"{why} (`{rule}`)") for sets, rule, why in record.pruned
    )
    return SweepTable(run.run_id, run.root.parent.name, rows, pruned, rule)


def _row(
    run: RunPaths, point: PointRecord, evidence: Evidence, verdict: Verdict, rule: Rule | None
) -> SweepRow:
    evidence = _with_log_metrics(evidence)
    times = [event.time for attempt in evidence.attempts for event in attempt.events if is_date(event.time)]
    status, reason = _status(point.run, evidence, verdict)
    speed = _measured(evidence, TOKENS)
    step = _measured(evidence, STEP_TIME)
    return SweepRow(
        index=point.index,
        sets=point.sets,
        status=status,
        tokens_per_s=_median(speed),
        step_s=_median(step),
        peak_gib=_peak(evidence),
        steps=max(len(speed), len(step)),
        reason="" if status == OK else reason,
        result=str(verdict.result),
        exit_code=verdict.exit_code,
        reused=point.reused,
        metrics={item.metric: item.last for item in verdict.figures if math.isfinite(item.last)},
        score=rule.value(evidence.metrics) if rule is not None else None,
        start=min(times, default=0.0),
        seconds=max(times, default=0.0) - min(times, default=0.0),
        page=os.path.relpath(point.run.root / "report.html", run.root),
        curves=_curves(
            evidence, [*(item.metric for item in verdict.figures), *([rule.metric] if rule else [])]
        ),
    )


def _curves(evidence: Evidence, metrics: Sequence[str]) -> dict[str, Sequence[Point]]:
    return {
        name: envelope(finite_points(evidence.metrics.series(name)), MAX_POINTS)
        for name in dict.fromkeys(metrics)
    }


def _with_log_metrics(evidence: Evidence) -> Evidence:
    """The evidence with the metrics of the framework's logs: harnesses print metrics that no file has."""
    from jobspec import frameworks

    attempt = evidence.last
    try:
        read = getattr(frameworks.get(evidence.plan.framework), "log_metrics", None)
    except JobspecError:  # an adapter that is not installed here
        return evidence
    if read is None or attempt is None:
        return evidence
    more = replace(attempt, metrics=prefer(attempt.metrics, read(evidence)))
    return replace(evidence, attempts=(*evidence.attempts[:-1], more))


def _status(run: RunPaths, evidence: Evidence, verdict: Verdict) -> tuple[str, str]:
    attempt = evidence.last
    if verdict.result is Result.PASS:
        return OK, ""
    memory = "a step ran out of memory" if evidence.metrics.series("oom") else _memory_line(attempt, verdict)
    if memory:
        return OOM, memory
    ended = _exit_code(run)
    if ended is None and not evidence.scheduler.state and (attempt is None or attempt.results is None):
        return (RUNNING, "") if attempt is not None else (NOT_RUN, "")
    if verdict.result is Result.NOTHING_RAN:
        if ended is None and evidence.scheduler.state == "CANCELLED":
            return NOT_RUN, "cancelled before it began"
        how = f"exit code {ended}" if ended is not None else evidence.scheduler.state
        return FAIL, f"ended before it left any evidence: {how}"
    return (FAIL if verdict.result is Result.FAIL else BLOCKED), verdict.reason


def _memory_line(attempt: Attempt | None, verdict: Verdict) -> str:
    """Why a point ran out of memory; empty when nothing says so.

    When one rank runs out of memory, the collectives of the others fail and print the loudest lines. So one
    line about memory in any log of the point is enough.
    """
    cause = verdict.first_cause
    if cause is not None and cause.kind in MEMORY_KINDS:
        return cause.text
    if attempt is None:
        return ""
    matches = (match for match in attempt.matches if match.kind in MEMORY_KINDS and not match.survived)
    match = next(matches, None)
    if match is not None:
        return f"{match.text} ({match.node or match.file})"
    return next((item.what for item in attempt.findings if item.rule in MEMORY_KINDS), "")


def _exit_code(run: RunPaths) -> int | None:
    try:
        return int(read_text(run.exit_file))
    except (OSError, ValueError):
        return None


def _measured(evidence: Evidence, name: str) -> list[float]:
    """A metric's finite values without the first: the first step compiles kernels and fills caches."""
    values = evidence.metrics.values(_metric(evidence, name), finite=True)
    return values[1:] if len(values) > 1 else values


def _metric(evidence: Evidence, name: str) -> str:
    return find_metric(name, evidence.plan.expect.metric_keys, evidence.metrics.by_metric)


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _peak(evidence: Evidence) -> float | None:
    """Peak memory in GiB: the framework's own figure, else the highest sample of any GPU."""
    key = _metric(evidence, PEAK_MEMORY)
    values = evidence.metrics.values(key, finite=True)
    if values:
        return max(values) * (GIB_PER_GB if key.endswith("_gb") else 1.0)
    sampled = [name for name in evidence.metrics.metrics if GPU_MEMORY.search(name)]
    values = [value for name in sampled for value in evidence.metrics.values(name, finite=True)]
    return max(values) if values else None
