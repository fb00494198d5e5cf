"""The trend of a run beside that of a known-good one: whether it learns no worse.

Two runs of the same code differ by more than the noise within each. So a run fails only where it lacks a
clear share of what the baseline gained, and passes only where its values rule such a lack out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jobspec import frameworks
from jobspec.evidence.evidence import Evidence
from jobspec.evidence.read import read_evidence
from jobspec.finding import fail
from jobspec.frameworks.shared.metric_deliverables import row_item
from jobspec.judging.first_cause import cause_from
from jobspec.judging.foreign_run import Expected, read_foreign
from jobspec.judging.judge import held_back
from jobspec.judging.not_proved import NO_BASELINE
from jobspec.metrics import Row, Table
from jobspec.metrics.learning_signal import MIN_EFFECT, SIGNIFICANT, Direction, Signal, assess
from jobspec.metrics.names import find_metric, logged_name
from jobspec.verdict import Deliverable, Result, Status, Verdict

BASELINE = "Known-good baseline"
MARGIN = 0.25  # of the baseline's own gain: a smaller lack is told and fails nothing


def with_baseline(verdict: Verdict, evidence: Evidence, place: Path) -> Verdict:
    """The verdict with the comparison as one more deliverable that the result needs.

    Raises: JobspecError when `place` holds no files of a run.
    """
    item = compare(evidence, read_baseline(place, evidence), place.name)
    if not any(one.name == "Run" and one.status is Status.PASS for one in verdict.deliverables):
        item = item if evidence.foreign else held_back(item)
    limits = tuple(text for text in verdict.limitations if text != NO_BASELINE)
    verdict = replace(verdict, deliverables=(*verdict.deliverables, item), limitations=limits)
    if verdict.result is not Result.PASS or item.status is Status.PASS:
        return verdict
    result = Result.FAIL if item.status is Status.FAIL else Result.BLOCKED
    return replace(verdict, result=result, first_cause=cause_from(item), reason=f"{item.name}: {item.reason}")


def read_baseline(place: Path, evidence: Evidence) -> Table:
    """The metrics of a run directory, or of files as found. Raises: JobspecError when they cannot be read."""
    if not place.exists():
        raise fail("judge.no-folder", f"there is no baseline `{place}`", fix="name a run, a folder or a file")
    if (place / "plan.json").is_file():
        return read_evidence(place).metrics
    expect = evidence.plan.expect
    framework = frameworks.get(evidence.plan.framework)
    expectation = Expected(
        framework, frameworks.find_level(framework, expect.level), learning=_metric(evidence)
    )
    with read_foreign(place, expectation) as foreign:
        return foreign.evidence.metrics


def compare(evidence: Evidence, baseline: Table, name: str) -> Deliverable:
    """The means of the last fifths of both series, over the steps that both have."""
    metric = _metric(evidence)
    rows = _rows(evidence.metrics, metric)
    theirs = _rows(baseline, logged_name(metric, baseline.metrics) or metric)
    for whose, found in (("this run", rows), (f"the baseline `{name}`", theirs)):
        if not found:
            reason = f"{whose} logged no `{metric or 'reward'}`: nothing can be compared"
            fix = "name the metric: `metrics.learning` of the spec, `--learning` of `judge`"
            return Deliverable(BASELINE, Status.BLOCKED, reason=reason, fix=fix)
    last = min(rows[-1].step or 0, theirs[-1].step or 0)
    learning = evidence.plan.expect.learning
    direction: Direction = "down" if learning is not None and learning.direction == "down" else "up"
    signals = [_signal(some, last, direction) for some in (rows, theirs)]
    status, reason = _judge(*signals)
    items = (row_item(rows[-1]), replace(row_item(theirs[-1]), file=f"{name}: {theirs[-1].source}"))
    return Deliverable(BASELINE, status, items, f"`{metric}` up to step {last}: {reason}")


def _judge(run: Signal, baseline: Signal) -> tuple[Status, str]:
    """Not worse by more than `MARGIN` of the baseline's gain, worse by more than that, or neither shown."""
    if not (run.window and baseline.window):
        short = run if not run.window else baseline
        return Status.BLOCKED, f"{'this run' if short is run else 'the baseline'}: {short.reason}"
    if not baseline.moved:
        return Status.BLOCKED, f"the baseline itself shows no learning: it {baseline.reason}"
    sign = 1.0 if run.direction == "up" else -1.0
    lack, margin = sign * (baseline.end - run.end), MARGIN * abs(baseline.change)
    error = math.hypot(run.noise / math.sqrt(run.window), baseline.noise / math.sqrt(baseline.window))
    figures = (
        f"{run.end:.4g} at the end, the baseline {baseline.end:.4g} (standard error {error:.2g}); "
        f"a quarter of what the baseline gained is {margin:.2g}"
    )
    if lack + SIGNIFICANT * error <= margin:
        return Status.PASS, f"no worse than the baseline: {figures}"
    if lack - MIN_EFFECT * error > margin:
        return Status.FAIL, f"clearly worse than the baseline: {figures}"
    return Status.BLOCKED, f"the noise leaves open whether it is worse than the baseline: {figures}"


def _metric(evidence: Evidence) -> str:
    """The metric that the level learns by, else the framework's reward as the run logged it."""
    expect = evidence.plan.expect
    if expect.learning is not None:
        return expect.learning.metric
    return find_metric("reward", expect.metric_keys, evidence.metrics.metrics)


def _rows(table: Table, metric: str) -> Sequence[Row]:
    return [row for row in table.series(metric) if row.step is not None]


def _signal(rows: Sequence[Row], last: int, direction: Direction) -> Signal:
    return assess([(row.step or 0, row.value) for row in rows if (row.step or 0) <= last], direction)
