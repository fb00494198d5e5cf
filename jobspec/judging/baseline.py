"""A run beside a known-good one: whether it ends better, the same or worse.

Two runs of the same code differ by more than the noise within each. So a run fails only where it lacks more
than a tolerance, and passes only where its values rule such a lack out. Without a tolerance of its own the
learnt metric has a share of what the baseline gained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

from jobspec import frameworks
from jobspec.evidence.evidence import Baseline, Evidence
from jobspec.evidence.read import read_evidence
from jobspec.finding import JobspecError, fail
from jobspec.frameworks.shared.metric_deliverables import row_item
from jobspec.judging.first_cause import cause_from
from jobspec.judging.judge import held_back, judge
from jobspec.judging.not_proved import NO_BASELINE
from jobspec.metrics import Row, Table
from jobspec.metrics.learning_signal import (
    MIN_EFFECT,
    MIN_POINTS,
    SIGNIFICANT,
    WINDOW_SHARE,
    Direction,
    Signal,
    assess,
)
from jobspec.metrics.names import find_metric, logged_name
from jobspec.plan import TolerancePlan
from jobspec.verdict import Deliverable, EvidenceItem, Result, Status, Verdict

BASELINE = "Known-good baseline"
MARGIN = 0.25  # of the baseline's own gain: a smaller lack is told and fails nothing


def judge_beside(evidence: Evidence, place: Path | None = None) -> tuple[Evidence, Verdict]:
    """The verdict, beside the run or file at `place`, else beside the plan's own baseline.

    Raises: JobspecError when `place` holds no files of a run. A baseline of the plan that is gone is Blocked.
    """
    verdict, planned = judge(evidence), evidence.plan.expect.baseline
    if place is None and planned is None:
        return evidence, verdict
    try:
        evidence = beside(evidence, place or Path(planned.place if planned else ""))
    except JobspecError as problem:
        if place is not None:
            raise
        why = f"the baseline cannot be read: {problem.findings[0].what}"
        gone = Deliverable(BASELINE, Status.BLOCKED, reason=why, fix="name it again by `--baseline`")
        return evidence, _with(verdict, evidence, (gone,))
    return evidence, with_baseline(verdict, evidence)


def beside(evidence: Evidence, place: Path) -> Evidence:
    """The evidence with the metrics of a known-good run. Raises: JobspecError when there are none."""
    return replace(evidence, baseline=Baseline(place.name, read_baseline(place, evidence)))


def with_baseline(verdict: Verdict, evidence: Evidence) -> Verdict:
    """The verdict with each comparison as one more deliverable that the result needs."""
    items = tuple(_comparisons(evidence))
    learnt = any(item.name == BASELINE for item in items)
    limits = tuple(text for text in verdict.limitations if not (learnt and text == NO_BASELINE))
    return _with(replace(verdict, limitations=limits), evidence, items)


def _with(verdict: Verdict, evidence: Evidence, items: tuple[Deliverable, ...]) -> Verdict:
    ended = any(one.name == "Run" and one.status is Status.PASS for one in verdict.deliverables)
    if not ended and not evidence.foreign:
        items = tuple(held_back(item) for item in items)
    verdict = replace(verdict, deliverables=(*verdict.deliverables, *items))
    order = (Status.FAIL, Status.BLOCKED, Status.SKIPPED)
    bad = sorted((item for item in items if item.status in order), key=lambda item: order.index(item.status))
    if verdict.result is not Result.PASS or not bad:
        return verdict
    worst = bad[0]
    result = Result.FAIL if worst.status is Status.FAIL else Result.BLOCKED
    return replace(
        verdict, result=result, first_cause=cause_from(worst), reason=f"{worst.name}: {worst.reason}"
    )


def read_baseline(place: Path, evidence: Evidence) -> Table:
    """The metrics of a run directory, or of files as found. Raises: JobspecError when they cannot be read."""
    if not place.exists():
        raise fail("judge.no-folder", f"there is no baseline `{place}`", fix="name a run, a folder or a file")
    if (place / "plan.json").is_file():
        return read_evidence(place).metrics
    from jobspec.judging.foreign_run import Expected, read_foreign

    expect = evidence.plan.expect
    framework = frameworks.get(evidence.plan.framework)
    expectation = Expected(
        framework, frameworks.find_level(framework, expect.level), learning=_metric(evidence)
    )
    with read_foreign(place, expectation) as foreign:
        return foreign.evidence.metrics


def _comparisons(evidence: Evidence) -> Iterator[Deliverable]:
    """The learnt metric, unless a tolerance has it or only tolerances are asked for; then each of those."""
    learnt, learning = _metric(evidence), evidence.plan.expect.learning
    planned = evidence.plan.expect.baseline
    tolerances = planned.tolerances if planned is not None else ()
    if not tolerances or (learning is not None and learnt not in {item.metric for item in tolerances}):
        yield _learnt(evidence, learnt)
    for item in tolerances:
        yield compare_within(evidence, item, learnt)


def _learnt(evidence: Evidence, metric: str) -> Deliverable:
    """The means of the last fifths of both series, over the steps that both have."""
    found = _both(evidence, metric)
    if isinstance(found, Deliverable):
        return found
    rows, theirs = found
    last = min(rows[-1].step or 0, theirs[-1].step or 0)
    signals = [_signal(some, last, _direction(evidence)) for some in found]
    status, reason = _judge(*signals)
    return Deliverable(
        BASELINE, status, _items(evidence, rows, theirs), f"`{metric}` up to step {last}: {reason}"
    )


def compare_within(evidence: Evidence, asked: TolerancePlan, learnt: str = "") -> Deliverable:
    """The means of both over the asked steps; without steps, over the last fifth that both have."""
    metric = asked.metric
    steps = f" (steps {asked.first or 1} to {asked.last or 'the end'})" if asked.first or asked.last else ""
    name = f"{BASELINE}{'' if metric == learnt else f', {metric}'}{steps}"
    found = _both(evidence, metric)
    if isinstance(found, Deliverable):
        return replace(found, name=name)
    last = min(asked.last or math.inf, *(some[-1].step or 0 for some in found))
    fifth = last - max(1, last // WINDOW_SHARE) + 1
    first = asked.first or (1 if asked.last else fifth)
    rows, theirs = ([row for row in some if first <= (row.step or 0) <= last] for some in found)
    for whose, some in (("this run", rows), ("the baseline", theirs)):
        bad = next((row for row in some if not math.isfinite(row.value)), None)
        if bad is not None:
            reason = f"{whose}: the value of step {bad.step} is not a finite number"
            return Deliverable(name, Status.BLOCKED, (row_item(bad),), reason)
    if not (rows and theirs):
        whose = "the baseline" if rows else "this run"
        reason = f"of {whose} no `{metric}` was read between the steps {first} and {asked.last or last:g}"
        return Deliverable(
            name, Status.BLOCKED, reason=reason, fix="correct the steps of `metrics.tolerances`"
        )
    ours, good = fmean(row.value for row in rows), fmean(row.value for row in theirs)
    error = math.hypot(_error(rows), _error(theirs))
    direction = asked.direction or (_direction(evidence) if metric == learnt else "")
    gap = good - ours if direction == "up" else ours - good
    status, word = _word(gap if direction else abs(gap), asked.within, error, bool(direction))
    known = (
        f"standard error {error:.2g}" if min(len(rows), len(theirs)) > 1 else "of one value no error is known"
    )
    reason = (
        f"`{metric}`, steps {first} to {last:g}: {word}: mean {ours:.4g}, the baseline {good:.4g} "
        f"({known}); {asked.within:.4g} is allowed"
    )
    return Deliverable(name, status, _items(evidence, rows, theirs), reason)


def _both(evidence: Evidence, metric: str) -> tuple[Sequence[Row], Sequence[Row]] | Deliverable:
    """The metric's values in both runs, or what is missing."""
    baseline = evidence.baseline or Baseline("", Table())
    rows = rows_of(evidence.metrics, metric)
    theirs = rows_of(baseline.metrics, logged_name(metric, baseline.metrics.metrics) or metric)
    for whose, found in (("this run", rows), (f"the baseline `{baseline.name}`", theirs)):
        if not found:
            reason = f"of {whose} no step with a `{metric or 'reward'}` was read: nothing can be compared"
            fix = "name the metric: `metrics.learning` of the spec, `--learning` of `judge`"
            return Deliverable(BASELINE, Status.BLOCKED, reason=reason, fix=fix)
    return rows, theirs


def _items(evidence: Evidence, rows: Sequence[Row], theirs: Sequence[Row]) -> tuple[EvidenceItem, ...]:
    name = evidence.baseline.name if evidence.baseline else ""
    return row_item(rows[-1]), replace(row_item(theirs[-1]), file=f"{name}: {theirs[-1].source}")


def _judge(run: Signal, baseline: Signal) -> tuple[Status, str]:
    """Not worse by more than `MARGIN` of the baseline's gain, worse by more than that, or neither shown."""
    if not (run.window and baseline.window):
        short = run if not run.window else baseline
        return Status.BLOCKED, f"{'this run' if short is run else 'the baseline'}: {short.reason}"
    if not baseline.moved:
        return Status.BLOCKED, f"the baseline itself shows no learning: it {baseline.reason}"
    sign = 1.0 if run.direction == "up" else -1.0
    margin = MARGIN * abs(baseline.change)
    error = math.hypot(run.noise / math.sqrt(run.window), baseline.noise / math.sqrt(baseline.window))
    status, word = _word(sign * (baseline.end - run.end), margin, error, True)
    return status, (
        f"{word}: {run.end:.4g} at the end, the baseline {baseline.end:.4g} (standard error {error:.2g}); "
        f"a quarter of what the baseline gained is {margin:.2g}"
    )


def _word(lack: float, margin: float, error: float, one_way: bool) -> tuple[Status, str]:
    """Better, same, worse, or what the noise leaves open. `lack` is how much worse the run is."""
    if lack - MIN_EFFECT * error > margin:
        return Status.FAIL, "clearly worse than the baseline" if one_way else "not the same as the baseline"
    if lack + SIGNIFICANT * error > margin:
        what = "it is worse than the baseline" if one_way else "it is the same as the baseline"
        return Status.BLOCKED, f"the noise leaves open whether {what}"
    if -lack - MIN_EFFECT * error > margin:
        return Status.PASS, "better than the baseline"
    same = abs(lack) + SIGNIFICANT * error <= margin
    return Status.PASS, "same as the baseline" if same else "no worse than the baseline"


def _error(rows: Sequence[Row]) -> float:
    """The standard error of the mean: by the noise around the curve, for few values by their spread."""
    values = [row.value for row in rows]
    if len(values) < MIN_POINTS:
        return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return assess([(row.step or 0, row.value) for row in rows]).noise / math.sqrt(len(values))


def _direction(evidence: Evidence) -> Direction:
    learning = evidence.plan.expect.learning
    return "down" if learning is not None and learning.direction == "down" else "up"


def _metric(evidence: Evidence) -> str:
    """The metric that the level learns by, else the framework's reward as the run logged it."""
    expect = evidence.plan.expect
    if expect.learning is not None:
        return expect.learning.metric
    return find_metric("reward", expect.metric_keys, evidence.metrics.metrics)


def rows_of(table: Table, metric: str) -> Sequence[Row]:
    return [row for row in table.series(metric) if row.step is not None]


def _signal(rows: Sequence[Row], last: int, direction: Direction) -> Signal:
    return assess([(row.step or 0, row.value) for row in rows if (row.step or 0) <= last], direction)
