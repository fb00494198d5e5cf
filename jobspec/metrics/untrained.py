"""Finds runs whose steps trained nothing, or nothing any more, whatever the steps' number says. Pure.

A reward explains constant losses and absent gradients: where all answers of a group earn the same, a policy's
loss is 0. So these patterns count for runs without one, as of supervised training and of preferences.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from itertools import takewhile

from jobspec.metrics import names
from jobspec.metrics.learning_signal import assess
from jobspec.metrics.table import Table
from jobspec.metrics.trouble import Rows, Trouble, series_named

MIN_ROWS = 3
MIN_CONSTANT = 8
MIN_END = 5
TINY = 1e-8  # a rate of a hundredth of what the most careful runs take
LOSS_LEAST = 0.05  # a loss below it, or of both signs, may be logged as 0 after rounding
NO_GRADIENT = (
    "if the logged value is true, such a step trains nothing, as where no parameter takes part in the loss,"
    " no token has a label, or a loss scaler skips the step"
)
UNTRAINED = (
    "look at which parameters require gradients, at the labels of a batch (of KTO booleans), and for skipped"
    " steps in the log"
)
# Not those of DPO, whose rewards are the model's own.
REWARDED = re.compile(
    r"(?i)^(?!(?:.*/)?rewards/(?:chosen|rejected|accuracies|margins)$).*(?:reward|advantage)"
)


def untrained(table: Table, keys: Mapping[str, str]) -> Iterator[Trouble]:
    """Patterns that no run shows whose steps train its model."""
    plan_names = names.own_names(keys)
    losses = list(series_named(table, names.LOSS_NAME, plan_names.get(names.LOSS)))
    rewarded = any(REWARDED.search(name) for name in table.metrics)
    for rows in losses:
        yield from _vanished_loss(rows, MIN_ROWS if rewarded else 1)
    fell = any(assess([(row.step or 0, row.value) for row in rows], "down").moved for rows in losses)
    for rows in series_named(table, names.LEARNING_RATE, None):
        if len(rows) >= MIN_CONSTANT and not any(row.value for row in rows) and not fell:
            what = f"`{rows[0].metric}` is exactly 0 at all {len(rows)} logged steps"
            why = "if the logged value is true, no step changes a weight, as where the configured rate is 0,"
            why += " the scheduler's length is wrong, or a loss scaler skips every step"
            fix = "look at the configured learning rate and the scheduler, and for skipped steps in the log"
            yield Trouble("zero-learning-rate", rows[0], what, why, fix)
        if len(rows) >= MIN_CONSTANT and 0 < (most := max(row.value for row in rows)) <= TINY and not fell:
            what = f"`{rows[0].metric}` is at most {most:.3g} at all {len(rows)} logged steps"
            why = "a step of an optimizer like Adam changes a weight by about the learning rate"
            fix = "compare it with the rate that was meant, and look at the scheduler"
            yield Trouble("tiny-learning-rate", rows[0], what, why, fix, fatal=False)
    if rewarded:
        return
    for rows in losses:
        yield from _constant_loss(rows)
    for rows in series_named(table, names.GRADIENT_NAME, plan_names.get(names.GRAD_NORM)):
        if len(rows) >= MIN_CONSTANT and not any(row.value for row in rows) and not fell:
            what = f"`{rows[0].metric}` is exactly 0 at all {len(rows)} logged steps"
            yield Trouble("no-gradient", rows[0], what, NO_GRADIENT, UNTRAINED)


def _vanished_loss(rows: Rows, least: int) -> Iterator[Trouble]:
    """A loss that was far from 0 and from one step to the next is exactly 0, up to the end."""
    kept = list(takewhile(lambda row: row.value != 0, rows))
    lost = rows[len(kept) :]
    if len(kept) < least or len(lost) < MIN_CONSTANT or any(row.value for row in lost):
        return
    before = [row.value for row in kept[-MIN_END:]]
    if all(value >= LOSS_LEAST for value in before):
        what = (
            f"`{lost[0].metric}` was {kept[-1].value:.3g} at step {kept[-1].step} and is exactly 0 from step"
        )
        why = "a loss hardly gets there by training at once: mostly weights or logits are no"
        why += " numbers any more (overflow), or no token has a label"
        fix = "look for NaN in the weights and at the batch of that step; start from a checkpoint before it,"
        fix += " where there is one"
        yield Trouble("vanished-loss", lost[0], f"{what} {lost[0].step} to the end", why, fix)


def _constant_loss(rows: Rows) -> Iterator[Trouble]:
    """A loss of four digits or more that is the same at all steps."""
    value = rows[0].value
    if (
        not math.isfinite(value)
        or len(rows) < MIN_CONSTANT
        or {row.value for row in rows} != {value}
        or float(f"{value:.3g}") == value
    ):
        return
    what = f"`{rows[0].metric}` is {value:.6g} at all {len(rows)} logged steps"
    why = "mostly it is not computed from the batch, no token has a label, or one batch comes again and again"
    why += " and no weight changes"
    if math.isclose(value, math.log(2), rel_tol=1e-3):
        why = (
            "that is ln 2, a preference loss where policy and reference answer alike: mostly no parameter is"
        )
        why += " trained, or no token has a label"
    fix = "look at the labels and logits of two batches, and at which parameters require gradients"
    yield Trouble("constant-loss", rows[0], what, why, fix)
