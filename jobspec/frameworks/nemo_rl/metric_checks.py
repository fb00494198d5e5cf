"""Metrics of a variant: written, finite throughout, and within the maintained script's conditions.

jobspec evaluates the script's conditions again. NeMo-RL's `tests/check_metrics.py` compares with Python's
`max` and `min`, which pass over a NaN unless it is the first value. Here one value that is not finite fails
every condition on its metric.
Source: NeMo-RL at 7ea279ab, `tests/check_metrics.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from jobspec.frameworks.nemo_rl.printed_config import MODEL
from jobspec.frameworks.nemo_rl.recipes import plain
from jobspec.frameworks.nemo_rl.variant import MetricCheck
from jobspec.frameworks.nemo_rl.variant_run import LOSS, VariantRun
from jobspec.frameworks.shared.answer import Answer
from jobspec.frameworks.shared.metric_deliverables import row_item
from jobspec.metrics import Row, Table
from jobspec.metrics.finite import all_finite, first_not_finite
from jobspec.runtime.base.requirement import OPERATORS
from jobspec.verdict import EvidenceItem, Status

FAR = 10.0  # times the limit
PROB_ERROR = "train/token_mult_prob_error"
# The guide's steps where the generator's log-probabilities differ from the trainer's.
ISOLATE = (
    "run again with `policy.megatron_cfg.sequence_parallel=false`, then `apply_rope_fusion=false`, shorter "
    "sequences, and vLLM as the generator; then the Bridge's parity tests of logits, import and export"
)


def give(metric: str) -> str:
    """The step where the metric was not found."""
    return (
        f"put the tracker's files of this run beside its log: they hold `{metric}`, which NeMo-RL's console"
        " does not print (`logger.log_dir` with TensorBoard's events, or the folder of W&B or MLflow); where"
        " no tracker was on, run again with `logger.tensorboard_enabled=true`"
    )


GRADIENT, MASKED = "train/grad_norm", "train/num_masked_seqs_by_logprob_error"


def judge_capture(run: VariantRun) -> Answer:
    """The first answer that is no `Pass`: wrong values are always faults and come before missing ones."""
    if not run.logs:
        return run.blocked("not shown: no log is among the files")
    outcomes = list(_outcomes(run))
    for part in (*_values(run), *_conditions(run, outcomes), *_table(run), *_masked(run), *_missing(run)):
        if part.status is not Status.PASS:
            return part
    log = EvidenceItem(run.logs[0].path, text=f"{run.logs[0].bytes} bytes")
    if not run.variant.metrics:
        return run.passed("the script logs no metrics; its own greps decide", [log])
    held = [row_item(outcome.row, outcome.check.text) for outcome in outcomes if outcome.row is not None]
    losses = [row for _, table in run.tables for row in table.series(LOSS)]
    ends = [row_item(row) for row in (losses[0], losses[-1])]
    finite = "; ".join(all_finite(table.as_logged()) for _, table in run.tables)
    conditions = f"{len(held)} conditions hold; " if held else ""
    names = "; ".join(dict.fromkeys((run.logs[0].path, losses[0].source)))
    reason = f"{names}; {conditions}{finite}"
    return run.passed(reason, [log, *ends, *held])


def _values(run: VariantRun) -> Iterator[Answer]:
    """Failures by values: one that is not finite is enough, since the script's `max()` passes over it."""
    printed = run.lines.get("not-a-number", ())
    if printed:
        yield run.failed(f"the log shows {printed[0].groups[0]} for a train step", [printed[0].item])
    for _, table in run.tables:
        bad = first_not_finite(table)
        if bad is not None:
            yield run.failed(f"`{bad.metric}` of step {bad.step} is {bad.value}", [row_item(bad)])
        norms = table.series(GRADIENT)
        if norms and all(row.value == 0 for row in norms):
            yield run.failed("every gradient was zero: nothing was trained", [row_item(norms[0])])


def _masked(run: VariantRun) -> Iterator[Answer]:
    """The answer where sequences were masked: conditions then hold by leaving them out."""
    rows = [row for _, table in run.tables for row in table.series(MASKED) if row.value > 0]
    if rows:
        reason = f"{rows[0].value:g} sequences of step {rows[0].step} were masked for their log-probabilities"
        yield run.blocked(f"{reason}: the conditions prove nothing about them", [row_item(rows[0])])


def _outcomes(run: VariantRun) -> Iterator[Outcome]:
    if run.guessed and run.other_backend:
        return  # nobody asked for these limits, which are Megatron's
    for check in run.variant.metric_checks:
        for name, table in run.tables:
            if not check.file or name in (check.file, ""):
                outcome = evaluate(check, table)
                if run.known or outcome.logged:
                    yield outcome


def _conditions(run: VariantRun, outcomes: list[Outcome]) -> Iterator[Answer]:
    """Failures by the script's conditions, which are never relaxed: log-probabilities really differ then."""
    for outcome in outcomes:
        if not outcome.holds and outcome.logged and (other := _for_another_model(run, outcome)):
            yield run.blocked(f"{outcome.reason}; {other}", [row_item(outcome.row)] if outcome.row else [])
        elif not outcome.holds:
            items = [row_item(outcome.row)] if outcome.row is not None else []
            answer = (
                run.failed(outcome.reason, items) if outcome.logged else run.unseen(outcome.reason, items)
            )
            of_log_probs = ISOLATE if outcome.check.metric == PROB_ERROR else ""
            yield replace(answer, fix=of_log_probs if outcome.logged else give(outcome.check.metric))


def _for_another_model(run: VariantRun, outcome: Outcome) -> str:
    """Why a condition of a script that nobody named fails no run: it is for another model; else empty.

    A value far beyond the limit fails any model's run.
    """
    check = outcome.check
    trained = next(iter(run.values(MODEL)), run.evidence.plan.expect.options.get("model"))
    if not run.guessed or check.metric == PROB_ERROR or not trained:
        return ""
    if plain(str(trained)) == plain(run.variant.model):
        return ""
    if outcome.row is not None and check.op in ("<", "<=") and not outcome.row.value <= FAR * check.limit:
        return ""
    return f"its script asks that of `{run.variant.model}`, and `{trained}` was trained: name the variant"


def _table(run: VariantRun) -> Iterator[Answer]:
    """Failures by the script's own table of checks, which it prints."""
    rows = run.lines.get("check", ())
    failed = next((row for row in rows if row.groups[0] == "FAIL"), None)
    if failed is not None:
        yield run.failed(f"the script's own check failed: {failed.groups[1]}", [failed.item])
    if not rows and run.variant.checks and not run.foreign:
        yield run.unseen("the script's own metric checks did not run")


def _missing(run: VariantRun) -> Iterator[Answer]:
    if not run.variant.metrics:
        return
    if not run.logged:
        passed = "; the log shows that the script's own checks passed" if run.lines.get("check") else ""
        yield run.unseen(f"no metrics of a train step were written{passed}")
        return
    absent = [name for name in run.variant.metrics if run.table(name) is None]
    if absent and not run.foreign:
        yield run.unseen(f"`{absent[0]}` was not written")
    if run.printed and not run.printed.keys() & run.logged.keys():
        spans = f"the metrics are of steps {_span(run.logged)}, the log shows steps {_span(run.printed)}"
        yield run.unseen(f"{spans}: the metrics are of another run", list(run.logged.values())[:1])
    last = max(run.logged)
    if last < run.planned:
        yield run.unseen(f"the metrics end at step {last} of {run.planned}", [run.logged[last]])


def _span(steps: Iterable[int]) -> str:
    ordered = sorted(steps)
    return f"{ordered[0]} to {ordered[-1]}"


# -- conditions --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """Whether a condition holds, and the row that decides. `logged` is False for a missing metric."""

    check: MetricCheck
    holds: bool
    reason: str
    row: Row | None = None
    logged: bool = True


def evaluate(check: MetricCheck, table: Table) -> Outcome:
    """The outcome of one condition on the rows of `table`."""
    rows = [row for row in table.series(check.metric) if row.step is not None]
    if not rows:
        reason = f"`{check.metric}` was not found"
        if alone := table.series(check.metric):  # a tracker's summary
            shown = f"{alone[-1].source} shows the last value alone, {alone[-1].value:g}"
            reason = f"`{check.metric}` of the steps: {shown}"
        return Outcome(check, False, reason, logged=False)
    bad = next((row for row in rows if not math.isfinite(row.value)), None)
    if bad is not None:
        reason = f"`{check.metric}` of step {bad.step} is {bad.value}, so `{check.text}` does not hold"
        return Outcome(check, False, reason, bad)
    if check.reduce in ("at", "has"):
        row = next((row for row in rows if row.step == int(check.argument)), None)
        if row is None:
            reason = f"`{check.metric}` of step {check.argument:g} was not logged"
            return Outcome(check, False, reason, rows[-1], logged=False)
        if check.reduce == "has":
            return Outcome(check, True, f"`{check.text}` holds", row)
        return _compared(check, row.value, row)
    if check.reduce in ("mean", "median"):  # the others have no range: they count all values
        last = max(row.step or 0 for row in rows)
        rows = [row for row in rows if check.covers(row.step or 0, last)]
        if not rows:
            reason = f"`{check.metric}` has none of the steps of `{check.text}`"
            return Outcome(check, False, reason, logged=False)
    value, row = _reduce(check, rows)
    return _compared(check, value, row)


def _reduce(check: MetricCheck, rows: Sequence[Row]) -> tuple[float, Row]:
    """The reduced value and a row to show: the minimum for `min`, else the maximum."""
    values = [row.value for row in rows]
    highest = max(rows, key=lambda row: row.value)
    if check.reduce == "min":
        return min(values), min(rows, key=lambda row: row.value)
    if check.reduce == "max":
        return max(values), highest
    if check.reduce == "mean":
        return fmean(values), highest
    if check.reduce == "median":
        return median(values), highest
    return sum(value >= check.argument for value in values) / len(values), highest


def _compared(check: MetricCheck, value: float, row: Row) -> Outcome:
    holds = OPERATORS[check.op](value, check.limit)
    word = "holds" if holds else "does not hold"
    return Outcome(check, holds, f"`{check.text}` {word}: {value:.6g}", row)
