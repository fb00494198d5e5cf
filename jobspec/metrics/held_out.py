"""Scores of data that is not trained on: one that is always 0, falls, or rises with the training. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from operator import gt

from jobspec.metrics import names
from jobspec.metrics.course import MIN_ROWS, SURE, since_row, usual_step
from jobspec.metrics.learning_signal import Direction, assess, trend_p_value
from jobspec.metrics.table import Table
from jobspec.metrics.trouble import Rows, Trouble, series_named

MIN_HELD_OUT = 5
HELD_OUT_FALL = 0.8  # of its start
LOSS_RISE = 1.1  # of its lowest value
EVALUATED_LOSS = re.compile(r"^(?:eval|val|validation|test)[-_/]loss$")
EVALUATION = re.compile(r"^(?:eval(?:uation)?|val(?:idation)?|test)[_/](?=\w)")  # before a metric's own name


def held_out(scores: Sequence[Rows]) -> Iterator[Trouble]:
    """Scores of data that is not trained on: one that is always 0, or below where it began."""
    rose = any(rows[-1].value > rows[0].value for rows in scores)
    for rows in scores:
        values = [row.value for row in rows if math.isfinite(row.value)]
        if len(values) >= MIN_ROWS and not any(values):
            what = f"`{rows[0].metric}` is exactly 0 in all {len(values)} evaluations"
            why = (
                "no answer to this data earns anything, as where it is too hard, or format or grader is wrong"
            )
            fix = "look at some of its samples and their scores"
            yield Trouble("held-out-zero", rows[0], what, why, fix, fatal=False)
        if len(values) < MIN_HELD_OUT or values[0] <= 0:
            continue
        width = max(1, len(values) // 5)
        start, end = (math.fsum(part) / width for part in (values[:width], values[-width:]))
        sure = SURE / 2 * usual_step(values) / math.sqrt(width)
        if end <= HELD_OUT_FALL * start and start - end >= sure:
            since = since_row(rows, partial(gt, start))
            ends = f" (means of {width} evaluations at each end)" if width > 1 else ""
            fell = (
                f"fell from {start:.3g} to {end:.3g}{ends}, mostly below its start from step {since.step} on"
            )
            what = f"`{rows[0].metric}` {fell}"
            why = "the model may get worse on data that it is not trained on"
            fix = "look at held-out samples before and after; the reward may be gamed"
            yield Trouble("held-out-fell", since, what, why, fix, fatal=not rose)


def held_out_loss(table: Table) -> Iterator[Trouble]:
    """A loss of data that is not trained on, which ends above its lowest value and rose ever since."""
    for rows in series_named(table, EVALUATED_LOSS, None):
        lowest = min(rows, key=lambda row: row.value)
        since = [row for row in rows if (row.step or 0) >= (lowest.step or 0)]
        rises = all(map(math.isfinite, (row.value for row in rows))) and len(since) >= MIN_ROWS
        rises = rises and all(one.value < then.value for one, then in pairwise(since))
        if rises and lowest.value > 0 and since[-1].value >= LOSS_RISE * lowest.value:
            last = since[-1]
            what = f"`{lowest.metric}` rose from {lowest.value:.4g} at step {lowest.step}"
            what += f" with each evaluation to {last.value:.4g} at step {last.step}"
            why = "where the training loss fell meanwhile, the model fits its own data at the cost of other"
            fix = "compare the checkpoint of the lowest value with the last one; fewer epochs, or more data"
            yield Trouble("held-out-loss-rose", since[1], what, why, fix, fatal=False)


def held_out_rise(table: Table, but: str = "") -> str:
    """The first held-out score but `but` that rises through the run, with its figures; else empty."""
    for rows in series_named(table, names.HELD_OUT, None):
        if rows[0].metric == but:
            continue
        values = [row.value for row in rows]
        higher = all(map(math.isfinite, values)) and len(values) > MIN_ROWS and values[-1] > values[0]
        if higher and trend_p_value(values) < 0.05:
            return f"`{rows[0].metric}` rose with it, {values[0]:.3g} -> {values[-1]:.3g}"
    return ""


def trained_rise(table: Table, metric: str, direction: Direction) -> str:
    """That the metric of the same name moved on the data that is trained on, for a held-out `metric`."""
    name = EVALUATION.sub("", metric)
    points = [(row.step, row.value) for row in table.series(name) if row.step is not None]
    if name == metric or not points:
        return ""
    signal = assess(points, direction)
    return f"`{name}`, of the training, {signal.reason}: {signal.figures()}" if signal.moved else ""
