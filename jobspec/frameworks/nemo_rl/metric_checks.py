"""Metrics of a variant: written, finite throughout, and as the maintained script wants them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from jobspec.frameworks.nemo_rl.levels import FINITE
from jobspec.frameworks.nemo_rl.metric_conditions import Outcome, evaluate
from jobspec.frameworks.nemo_rl.variant_run import LOSS, VariantRun
from jobspec.frameworks.nemo_rl.variant_verdicts import Part, passed, unseen, wrong
from jobspec.frameworks.shared.metric_deliverables import row_item
from jobspec.metrics import Row, Table
from jobspec.verdict import EvidenceItem, Status

GRADIENT = "train/grad_norm"


def judge_capture(run: VariantRun) -> Part:
    """Values first, since a wrong one is a fault whatever else is missing; then what was not captured."""
    if not run.logs:
        return Part(Status.BLOCKED, f"`{run.name}`: not shown: no log is among the files")
    outcomes = list(_outcomes(run))
    for part in (*_values(run), *_conditions(run, outcomes), *_table(run), *_missing(run)):
        if part.status is not Status.PASS:
            return part
    log = EvidenceItem(run.logs[0].path, text=f"{run.logs[0].bytes} bytes")
    if not run.variant.metrics:
        return passed(run, "its script logs no metrics; its own greps decide", [log])
    held = [row_item(one.row, one.check.text) for one in outcomes if one.row is not None]
    losses = [row for _, table in run.tables for row in table.series(LOSS)]
    ends = [row_item(row) for row in (losses[0], losses[-1])]
    told = f"{run.logs[0].path}; {losses[0].source}; {len(held)} conditions hold, all values finite"
    return passed(run, told, [log, *ends, *held])


def _values(run: VariantRun) -> Iterator[Part]:
    """One value that is not a number is enough: the script's `max()` passes over it."""
    printed = run.lines.get("not-a-number", ())
    if printed:
        yield wrong(run, f"the log shows {printed[0].groups[0]} for a train step", [printed[0].item])
    for _, table in run.tables:
        bad = _not_finite(table)
        if bad is not None:
            yield wrong(run, f"`{bad.metric}` of step {bad.step} is {bad.value}", [row_item(bad)])
        norms = table.series(GRADIENT)
        if norms and all(row.value == 0 for row in norms):
            yield wrong(run, "every gradient was zero: nothing was trained", [row_item(norms[0])])


def _not_finite(table: Table) -> Row | None:
    bad = [row for name in FINITE for row in table.series(name) if not math.isfinite(row.value)]
    return min(bad, key=lambda row: row.step or 0, default=None)


def _outcomes(run: VariantRun) -> Iterator[Outcome]:
    for check in run.variant.checks:
        for name, table in run.tables:
            if not check.file or name in (check.file, ""):
                yield evaluate(check, table)


def _conditions(run: VariantRun, outcomes: list[Outcome]) -> Iterator[Part]:
    """A condition that does not hold is never relaxed: the two log-probabilities really differ then."""
    for one in outcomes:
        if not one.holds:
            items = [row_item(one.row)] if one.row is not None else []
            yield wrong(run, one.reason, items) if one.logged else unseen(run, one.reason, items)


def _table(run: VariantRun) -> Iterator[Part]:
    """The script's own table of checks, which goes to its terminal."""
    rows = run.lines.get("check", ())
    failed = next((row for row in rows if row.groups[0] == "FAIL"), None)
    if failed is not None:
        yield wrong(run, f"the script's own check failed: {failed.groups[1]}", [failed.item])
    if not rows and run.variant.checks and not run.foreign:
        yield unseen(run, "the script's own metric checks did not run")


def _missing(run: VariantRun) -> Iterator[Part]:
    if not run.variant.metrics:
        return
    if not run.logged:
        told = "; the log shows that its own checks passed" if run.lines.get("check") else ""
        yield unseen(run, f"no metrics of a train step were written{told}")
        return
    absent = [name for name in run.variant.metrics if run.table(name) is None]
    if absent and not run.foreign:
        yield unseen(run, f"`{absent[0]}` was not written")
    if run.printed and not run.printed.keys() & run.logged.keys():
        told = f"the metrics are of steps {_span(run.logged)}, the log shows {_span(run.printed)}"
        yield unseen(run, f"{told}: they are of another run", list(run.logged.values())[:1])
    last = max(run.logged)
    if last < run.planned:
        yield unseen(run, f"the metrics end at step {last} of {run.planned}", [run.logged[last]])


def _span(steps: Iterable[int]) -> str:
    found = sorted(steps)
    return f"{found[0]} to {found[-1]}"
