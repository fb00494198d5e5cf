"""A run beside the one whose lock it repeats: verdict, phases, metrics and what they ran on.

It changes no verdict. A metric is the same where its mean over the last fifth of the steps lies within a
tolerance: of the spec, else of the spread of earlier repeats, else a quarter of what the first run gained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import yaml

from jobspec.evidence.evidence import GOOD, Baseline, Evidence
from jobspec.evidence.read import read_evidence
from jobspec.finding import JobspecError
from jobspec.judging.baseline import MARGIN, compare_within, judge_beside, rows_of
from jobspec.judging.sameness import DIFFERS, SAME, UNKNOWN, compared, planned_facts, seen_facts
from jobspec.metrics import Table
from jobspec.metrics.learning_signal import SIGNIFICANT, WINDOW_SHARE, assess
from jobspec.metrics.names import logged_name
from jobspec.metrics.requirements import required_metric
from jobspec.plan import TolerancePlan
from jobspec.runs.paths import RunPaths
from jobspec.runtime.base.run_files import parse_json, read_text
from jobspec.units import duration
from jobspec.verdict import Beside, Reproduction, Status, Verdict

FIRST = "first run"
MAX_METRICS, MAX_REPEATS = 8, 8
MIN_ENDS = 3  # of the first run and its repeats: two say next to nothing about a spread
WORDS = {Status.PASS: SAME, Status.FAIL: DIFFERS}
DAMAGED = (OSError, ValueError, RecursionError, yaml.YAMLError)


def judged(evidence: Evidence, place: Path | None = None) -> tuple[Evidence, Verdict]:
    """`judge_beside`, with what the run has in common with the one that it repeats. Raises: as it."""
    evidence, verdict = judge_beside(evidence, place)
    named = _original(evidence.root)
    if named is None:
        return evidence, verdict
    return evidence, replace(verdict, reproduction=_compare(evidence, verdict, named))


def _original(root: Path) -> Path | None:
    """The folder of the run that this one repeats, as `reproduce` noted it; None for a run of its own."""
    try:
        named = parse_json(read_text(RunPaths(root).reproduces))
    except DAMAGED:
        return None
    folder = named.get("folder") if isinstance(named, dict) else None
    return Path(folder) if isinstance(folder, str) and folder else None


def _compare(evidence: Evidence, verdict: Verdict, folder: Path) -> Reproduction:
    """Beside each other, or the problem: the first run may be gone, or be closed to who reads this one."""
    rows: tuple[Beside, ...] = ()
    problem = ""
    try:
        RunPaths(folder).plan.stat()
        RunPaths(folder).attempts()
        first = read_evidence(folder)
        if not first.plan_read:
            problem = "its plan cannot be read"
        elif _settings(folder) != _settings(evidence.root):
            problem = "this point has other settings there"
        else:
            rows = tuple(_rows(first, evidence, verdict))
    except FileNotFoundError:
        problem = "its files are not here"
    except OSError as error:
        problem = f"its files cannot be read: {(error.strerror or str(error)).lower()}"
    except JobspecError as error:
        problem = f"its files cannot be read: {error.findings[0].what}"
    said = f"{problem}, so nothing can be compared" if problem else ""
    return Reproduction(folder.name, str(folder), rows, said)


def _rows(first: Evidence, now: Evidence, verdict: Verdict) -> Iterator[Beside]:
    theirs = judge_beside(first)[1]
    yield Beside("verdict", str(theirs.result), str(verdict.result), _word(theirs.result, verdict.result))
    yield from _phases(first, now)
    yield from _metrics(first, now, verdict)
    yield from _facts(first, now)


def _settings(folder: Path) -> object:
    """The settings of a sweep's point; None for a run of its own."""
    if folder.parent.name != "points":
        return None
    try:
        points = parse_json(read_text(RunPaths(folder.parent.parent).points_index))["points"]
        return next((item["sets"] for item in points if str(item["index"]) == folder.name), None)
    except (*DAMAGED, KeyError, TypeError):
        return None


def _word(was: object, now: object) -> str:
    return SAME if was == now else DIFFERS


def _phases(first: Evidence, now: Evidence) -> Iterator[Beside]:
    """Phases by their outcomes; their times are told, and decide nothing."""
    was, here = _by_phase(first), _by_phase(now)
    for name in dict.fromkeys((*was, *here)):
        old, new = was.get(name, ("", "-")), here.get(name, ("", "-"))
        if {old[0], new[0]} == {"skipped"}:
            continue
        yield Beside(f"phase {name}", " ".join(old).strip(), " ".join(new).strip(), _word(old[0], new[0]))


def _by_phase(evidence: Evidence) -> dict[str, tuple[str, str]]:
    results = evidence.last.results if evidence.last is not None else None
    phases = results.phases if results is not None else ()
    took = {item.phase: duration(max(0.0, item.end - item.start)) if item.end else "" for item in phases}
    return {item.phase: (item.outcome, took[item.phase]) for item in phases}


def _metrics(first: Evidence, now: Evidence, verdict: Verdict) -> Iterator[Beside]:
    repeats = _repeats(first, now.root)
    beside = replace(now, baseline=Baseline(FIRST, first.metrics))
    for metric in _compared_metrics(now, verdict)[:MAX_METRICS]:
        theirs = rows_of(first.metrics, logged_name(metric, first.metrics.metrics) or metric)
        rows = rows_of(now.metrics, metric)
        old, new = (_number([row.value for row in some]) for some in (theirs, rows))
        pairs = [[(row.step, row.value) for row in some] for some in (theirs, rows)]
        if rows and pairs[0] == pairs[1]:
            yield Beside(f"metric {metric}", old, new, SAME, f"identical at all {len(rows)} steps")
            continue
        within, source = _tolerance(now, metric, [first.metrics, *(item.metrics for item in repeats)])
        found = compare_within(beside, TolerancePlan(metric, within))
        reason = found.reason.replace("the baseline", "the first run").replace(f"`{FIRST}`", "").strip()
        word = WORDS.get(found.status, UNKNOWN)
        yield Beside(
            f"metric {metric}", old, new, word, f"{reason} ({source})" if rows and theirs else reason
        )


def _compared_metrics(now: Evidence, verdict: Verdict) -> list[str]:
    """What the spec and the framework look at, else all that was logged."""
    expect = now.plan.expect
    tolerances = expect.baseline.tolerances if expect.baseline is not None else ()
    names = [item.metric for item in tolerances]
    names += [expect.learning.metric] if expect.learning is not None else []
    names += [required_metric(text) for text in expect.metrics_require]
    names += [figure.metric for figure in verdict.figures]
    return list(dict.fromkeys(filter(None, names))) or list(now.metrics.metrics)


def _tolerance(now: Evidence, metric: str, tables: Sequence[Table]) -> tuple[float, str]:
    planned = now.plan.expect.baseline
    asked = next((item for item in (planned.tolerances if planned else ()) if item.metric == metric), None)
    if asked is not None:
        return asked.within, "the tolerance of the spec"
    ends = _ends(tables, metric)
    if len(ends) >= MIN_ENDS:
        spread = SIGNIFICANT * stdev(ends) * math.sqrt(1 + 1 / len(ends))
        return spread, f"the spread of {len(ends)} runs of the same lock"
    rows = rows_of(tables[0], logged_name(metric, tables[0].metrics) or metric)
    signal = assess([(row.step or 0, row.value) for row in rows if math.isfinite(row.value)])
    gain = abs(signal.change) if signal.moved and math.isfinite(signal.change) else 0.0
    source = "a quarter of what the first run gained" if gain else "the first run shows no trend"
    return MARGIN * gain, source


def _ends(tables: Sequence[Table], metric: str) -> list[float]:
    """The mean over the last steps of the first run, of each run that came so far."""
    found = [rows_of(table, logged_name(metric, table.metrics) or metric) for table in tables]
    curves = [[(row.step or 0, row.value) for row in rows] for rows in found]
    end = max((step for step, _ in curves[0]), default=0)
    whole = [curve for curve in curves if max((step for step, _ in curve), default=-1) >= end]
    last = [[value for step, value in curve if step <= end] for curve in whole]
    tails = [values[-max(1, len(values) // WINDOW_SHARE) :] for values in last]
    return [fmean(tail) for tail in tails if tail and all(map(math.isfinite, tail))]


def _repeats(first: Evidence, now: Path) -> list[Evidence]:
    """The newest other runs that repeat the same one, beside it and beside this one, and ended well.

    With other code they would not tell how far runs differ by themselves.
    """
    parents = {first.root.parent, now.parent}
    folders = {path.parent for parent in parents for path in parent.glob("*/reproduces.json")}
    others = [path for path in folders if path.resolve() != now.resolve() and _original(path) == first.root]
    newest = sorted(others, key=lambda path: path.name, reverse=True)[:MAX_REPEATS]
    read = (read_evidence(path) for path in newest)
    return [item for item in read if _ended_well(item) and _same_code(first, item)]


def _ended_well(evidence: Evidence) -> bool:
    results = evidence.last.results if evidence.last is not None else None
    return results is not None and results.outcome in GOOD and not results.collecting


def _same_code(first: Evidence, other: Evidence) -> bool:
    was, here = (planned_facts(item.plan, _lock(item.root)) for item in (first, other))
    return all(fact.word == SAME for fact in compared(was, here) if fact.name.startswith("code"))


def _facts(first: Evidence, now: Evidence) -> Iterator[Beside]:
    was, here = ({**planned_facts(item.plan, _lock(item.root)), **seen_facts(item)} for item in (first, now))
    facts = compared(was, here)
    same = [fact.name for fact in facts if fact.word == SAME]
    if same:
        yield Beside(", ".join(same), "", "", SAME)
    yield from (Beside(fact.name, fact.was, fact.now, fact.word) for fact in facts if fact.word != SAME)


def _lock(root: Path) -> Mapping[str, Any]:
    try:
        data = yaml.safe_load(read_text(RunPaths(root).lock))
    except DAMAGED:
        return {}
    return data if isinstance(data, dict) and isinstance(data.get("lock", {}), dict) else {}


def _number(values: Sequence[float]) -> str:
    return f"{values[-1]:.6g}" if values else ""
