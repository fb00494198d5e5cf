"""The one table of metrics that every reader fills and every check reads.

Plain frozen data. Nothing here reads files or knows a framework's metric names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from jobspec.finding import Finding
from jobspec.runtime.base.metric_files import Row, by_step


@dataclass(frozen=True)
class Table:
    """Rows in the order they were read, and what could not be read."""

    rows: tuple[Row, ...] = ()
    findings: tuple[Finding, ...] = ()

    @cached_property
    def by_metric(self) -> dict[str, tuple[Row, ...]]:
        """Rows of each metric by step; of two rows with one step the later one stays, as after a resume."""
        groups: dict[str, list[Row]] = {}
        for row in self.rows:
            groups.setdefault(row.metric, []).append(row)
        return {name: tuple(by_step(rows)) for name, rows in groups.items()}

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metric names in the order they first appear."""
        return tuple(self.by_metric)

    def series(self, metric: str) -> tuple[Row, ...]:
        """Rows of `metric` by step; `()` when it was never logged."""
        return self.by_metric.get(metric, ())

    def values(self, metric: str, *, finite: bool = False) -> list[float]:
        """Values of `metric` by step, only the finite ones on request."""
        return [row.value for row in self.series(metric) if not finite or math.isfinite(row.value)]

    def last_step(self) -> int | None:
        """The highest step that any metric was logged at."""
        return max((row.step for row in self.rows if row.step is not None), default=None)

    def first_step(self) -> int | None:
        """The lowest step that any metric was logged at."""
        return min((row.step for row in self.rows if row.step is not None), default=None)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def concat(tables: Iterable[Table]) -> Table:
    """All rows and findings, in order."""
    found = list(tables)
    return Table(
        tuple(row for table in found for row in table.rows),
        tuple(finding for table in found for finding in table.findings),
    )


def grouped(table: Table, prefix: str) -> Table:
    """The table with `prefix` before each metric's name; `only` is its inverse."""
    if not prefix:
        return table
    return replace(table, rows=tuple(row._replace(metric=f"{prefix}{row.metric}") for row in table.rows))


def only(table: Table, prefix: str) -> Table:
    """The metrics whose names begin with `prefix`, without it."""
    own = (row for row in table.rows if row.metric.startswith(prefix))
    return Table(tuple(row._replace(metric=row.metric.removeprefix(prefix)) for row in own))


def prefer(first: Table, *others: Table) -> Table:
    """One table of several sources: a value that an earlier one has at a step is not taken again."""
    rows, findings = list(first.rows), list(first.findings)
    for table in others:
        have = {(row.metric, row.step) for row in rows}
        rows.extend(row for row in table.rows if (row.metric, row.step) not in have)
        findings.extend(table.findings)
    return Table(tuple(rows), tuple(findings))


def continue_tables(tables: Iterable[Table]) -> Table:
    """The table of a run that went on over several attempts.

    An attempt that resumes at step 50 replaces what earlier attempts logged from step 50 on, one that
    starts again replaces all of it: the metrics that remain belong to the weights that remain.
    """
    rows: list[Row] = []
    findings: list[Finding] = []
    for table in tables:
        first = table.first_step()
        if first is not None:
            rows = [row for row in rows if row.step is None or row.step < first]
        rows.extend(table.rows)
        findings.extend(table.findings)
    return Table(tuple(rows), tuple(findings))
