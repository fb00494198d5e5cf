"""Which metrics must be numbers throughout, whatever a framework calls them. Pure.

A NaN or an infinite value of these means that a value which training rests on was lost. Spreads,
correlations, counts and times may be NaN in a healthy run: of one sample there is no spread.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from jobspec.metrics.table import Table
from jobspec.runtime.base.metric_files import Row
from jobspec.words import some

WATCHED = re.compile(
    r"(?<![a-z])(?:[a-z]*loss(?:es)?|rewards?|scores?|[a-z]*kl[df]?|entrop(?:y|ies)|grads?|gradients?|gradnorm|"
    r"(?:log)?probs?|logps?|divergence|nll|ppl|perplexity)(?![a-z])"
)
OTHER = re.compile(
    r"(?<![a-z])(?:std|stddev|var|variance|corr|pearson|pct|frac|fraction|num|count|valid|tokens|timing|timer|"
    r"times?|sec|seconds|ms|perf|performance|throughput|memory|mem|gpu|mfu|coef|lr)(?![a-z])"
)
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
MAX_NAMED = 5


def is_watched(metric: str) -> bool:
    """Whether the name says loss, reward, KL, entropy, gradient, probability or divergence."""
    name = CAMEL.sub("_", metric).lower()
    return bool(WATCHED.search(name)) and not OTHER.search(name)


def watched(table: Table) -> tuple[str, ...]:
    """The names of the table's watched metrics."""
    return tuple(name for name in table.metrics if is_watched(name))


def first_not_finite(table: Table, more: Iterable[str] = ()) -> Row | None:
    """The earliest row of a watched metric, or of `more`, that is NaN or infinite."""
    rows = (row for name in (*watched(table), *more) for row in table.series(name))
    return min((row for row in rows if not math.isfinite(row.value)), key=lambda r: r.step or 0, default=None)


def all_finite(table: Table) -> str:
    """What was scanned, as a part of a sentence, for a table without such a row."""
    names = watched(table)
    if not names:
        return "no metric that has to be finite is logged"
    if len(names) == 1:
        return f"all values of `{names[0]}` are finite"
    return f"all values of {len(names)} metrics are finite ({some(names, MAX_NAMED)})"
