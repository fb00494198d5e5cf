"""Which metrics must be numbers throughout, whatever a framework calls them. Pure.

A NaN or an infinite value of these means that a value which training rests on was lost. Spreads,
correlations, counts and times may be NaN in a healthy run: of one sample there is no spread.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from jobspec.metrics.names import GRADIENT_NAME
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


def passing(metric: str, rows: Sequence[Row]) -> bool:
    """Whether a gradient norm was no number in some steps, half of all at most, and is one again at the end.

    Mixed precision skips the updates whose gradients overflow while it looks for its loss scale.
    """
    lost = [at for at, row in enumerate(rows) if not math.isfinite(row.value)]
    if not lost or GRADIENT_NAME.search(metric) is None:
        return False
    return 2 * len(lost) <= len(rows) and lost[-1] < len(rows) - 1


def first_not_finite(table: Table, more: Iterable[str] = ()) -> Row | None:
    """The earliest row of a watched metric, or of `more`, that is NaN or infinite; see `passing`."""
    names = [name for name in (*watched(table), *more) if not passing(name, table.series(name))]
    rows = (row for name in names for row in table.series(name))
    return min((row for row in rows if not math.isfinite(row.value)), key=lambda r: r.step or 0, default=None)


def all_finite(table: Table) -> str:
    """What was scanned, as a part of a sentence, for a table without such a row."""
    passed = [name for name in watched(table) if passing(name, table.series(name))]
    names = [name for name in watched(table) if name not in passed]
    told = "jobspec read no metric that has to be finite"
    if names:
        which = f"`{names[0]}`" if len(names) == 1 else f"the {len(names)} metrics that jobspec watches"
        every = f" ({some(names, MAX_NAMED)})" if len(names) > 1 else ""
        told = f"all values of {which} are finite{every}"
    return "; ".join([told, *(_passed(name, table.series(name)) for name in passed)])


def _passed(name: str, rows: Sequence[Row]) -> str:
    lost = [row for row in rows if not math.isfinite(row.value)]
    return f"`{name}` is {lost[0].value} in {len(lost)} of {len(rows)} logged steps, and a number again after"
