"""Finds patterns of metrics that show a training that runs and learns nothing. Pure.

The patterns know the metric names of NeMo-RL, verl and TRL; the plan adds a framework's own names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from jobspec.metrics import names
from jobspec.metrics.table import Table
from jobspec.runtime.base.metric_files import Row

GRADIENT = re.compile(r"(?:^|/)grad_norm$")
KL_LOSS = re.compile(r"(?:^|/)kl_(?:loss|penalty)$|^train/kl$")
LOG_PROBS = re.compile(r"(?:^|/)(?:mean_)?log_?probs?(?:/mean)?$")
REWARD = re.compile(f"^(?:{'|'.join(map(re.escape, names.LIKELY[names.REWARD]))})$")
CLIPPED = re.compile(r"(?:^|/)(?:clip_ratio|clipped_ratio|truncation_rate)$")
LENGTH = re.compile(r"response_length|completions|truncation")
MIN_ROWS = 3  # fewer constant values are no pattern
MIN_CONSTANT = 8
HIGH = 0.95


@dataclass(frozen=True)
class Trouble:
    """One pattern: `kind` for scripts, the row that shows it first, and what it means.

    A `fatal` pattern contradicts any claim of learning; the others explain a missing learning signal.
    """

    kind: str
    row: Row
    what: str
    why: str
    fix: str
    fatal: bool = True


def troubles(table: Table, keys: Mapping[str, str] | None = None) -> tuple[Trouble, ...]:
    """Every pattern that the metrics show; `keys` are the framework's own names, such as `reward`."""
    return tuple(_troubles(table, keys or {}))


def _troubles(table: Table, keys: Mapping[str, str]) -> Iterator[Trouble]:
    plan_names = names.own_names(keys)
    for rows in _series(table, GRADIENT, plan_names.get(names.GRAD_NORM)):
        yield from _not_finite(rows)
        yield from _no_gradient(rows)
    for rows in _series(table, KL_LOSS, None):
        yield from _not_finite(rows)
        yield from _frozen(rows)
    for rows in _series(table, LOG_PROBS, None):
        yield from _constant(rows, "constant-logprobs", "the sampled policy never changes")
    for rows in _series(table, REWARD, plan_names.get(names.REWARD)):
        yield from _not_finite(rows)
        yield from _saturated(rows) or _constant(rows, "constant-reward", "no answer is better than another")
    for rows in _series(table, CLIPPED, None):
        if LENGTH.search(rows[0].metric):
            yield from _capped(rows)


def _series(table: Table, pattern: re.Pattern[str], plan_name: str | None) -> Iterator[Sequence[Row]]:
    for name in table.metrics:
        if name == plan_name or pattern.search(name):
            rows = [row for row in table.series(name) if row.step is not None]
            if rows:
                yield rows


def _not_finite(rows: Sequence[Row]) -> Iterator[Trouble]:
    bad = next((row for row in rows if not math.isfinite(row.value)), None)
    if bad is not None:
        what = f"`{bad.metric}` of step {bad.step} is {bad.value}"
        why = "one such value spoils every parameter that it reaches"
        yield Trouble("not-finite", bad, what, why, "look for the first such value; lower the learning rate")


def _no_gradient(rows: Sequence[Row]) -> Iterator[Trouble]:
    zero = [row for row in rows if row.value == 0]
    if 2 * len(zero) > len(rows):
        what = f"`{rows[0].metric}` is exactly 0 in {len(zero)} of {len(rows)} steps"
        why = "nothing is trained in such a step: equal rewards in every group, or no parameter takes part"
        fix = "check that rewards differ within a group, and which parameters require gradients"
        yield Trouble("zero-gradient", zero[0], what, why, fix)


def _frozen(rows: Sequence[Row]) -> Iterator[Trouble]:
    # The first step's value is 0 by itself: policy and reference are then the same.
    later = rows[1:]
    if len(later) >= MIN_ROWS and all(row.value == 0 for row in later):
        what = f"`{rows[0].metric}` is exactly 0 at all {len(later)} steps after the first"
        why = "the policy never leaves its reference: the adapter is frozen or not used, or no KL is computed"
        fix = "check that the adapter is trainable and that its weights reach the measured policy"
        yield Trouble("frozen-policy", later[0], what, why, fix)


def _constant(rows: Sequence[Row], kind: str, why: str) -> Iterator[Trouble]:
    if len(rows) >= MIN_CONSTANT and len({row.value for row in rows}) == 1:
        what = f"`{rows[0].metric}` is {rows[0].value:.6g} at all {len(rows)} steps"
        yield Trouble(kind, rows[0], what, why, "look at some samples and at their values", fatal=False)


def _saturated(rows: Sequence[Row]) -> list[Trouble]:
    """A share that starts at its ceiling."""
    values = [row.value for row in rows]
    first = values[: max(MIN_ROWS, len(values) // 5)]
    share = all(0 <= value <= 1 for value in values)
    if len(values) < MIN_CONSTANT or not share or math.fsum(first) / len(first) < HIGH:
        return []
    what = f"`{rows[0].metric}` starts at {values[0]:.3g}: it is at its ceiling from the start"
    why = "there is nothing left to learn on this data"
    return [Trouble("saturated-reward", rows[0], what, why, "use harder data to show learning", fatal=False)]


def _capped(rows: Sequence[Row]) -> Iterator[Trouble]:
    values = [row.value for row in rows if math.isfinite(row.value)]
    if len(values) >= MIN_ROWS and median(values) >= HIGH:
        what = f"`{rows[0].metric}` is about {median(values):.2g}: most answers are cut at their length limit"
        why = "an answer that is cut off seldom earns its reward"
        fix = "raise the response length, or use a model that ends its answers"
        yield Trouble("length-cap", rows[0], what, why, fix, fatal=False)
