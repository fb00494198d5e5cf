"""What a pattern of metrics is, and the series that a pattern is looked for in. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jobspec.metrics.table import Table
from jobspec.runtime.base.metric_files import Row

Rows = Sequence[Row]


@dataclass(frozen=True)
class Trouble:
    """One pattern: `kind` for scripts, the row that shows it first, and what it means.

    A `fatal` pattern contradicts any claim of learning; the others explain a missing learning signal, or what
    a rise is worth.
    """

    kind: str
    row: Row
    what: str
    why: str
    fix: str
    fatal: bool = True


def series_named(table: Table, pattern: re.Pattern[str], plan_name: str | None) -> Iterator[Rows]:
    """The rows with a step of each metric that has the plan's own name, or one that fits."""
    for name in table.metrics:
        twice = table.names.get(name) in table.by_metric  # stands there under the name that was logged
        if not twice and (name == plan_name or pattern.search(name)):
            rows = [row for row in table.series(name) if row.step is not None]
            if rows:
                yield rows
