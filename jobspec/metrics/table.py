"""The one table of metrics that every reader fills and every check reads.

Plain frozen data. Nothing here reads files or knows a framework's metric names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from jobspec.finding import Finding
from jobspec.metrics.names import plain_name
from jobspec.runtime.base.metric_files import Row, by_step

# NeMo-RL watches Ray with seconds as steps. Source: nemo_rl/utils/logger.py, RayGpuMonitorLogger.
WATCHED = re.compile(r"(?:^|/)ray/(?:node\.\d|ray/)")
INFERRED = 0.95  # what a step that no record names counts, beside one


@dataclass(frozen=True)
class Table:
    """Rows in the order they were read, and what could not be read.

    `planned` is the number of steps that a trainer announced, 0 where none did. `inferred` are the sources
    whose lines name no step: their rows have a counted one. `aside` are rows for which another source stands.
    `names` maps metrics that go by a name that was asked for to the one that was logged.
    """

    rows: tuple[Row, ...] = ()
    findings: tuple[Finding, ...] = ()
    planned: int = 0
    inferred: tuple[str, ...] = ()
    aside: tuple[Row, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def by_metric(self) -> dict[str, tuple[Row, ...]]:
        """Rows of each metric by step. The later of two rows of one step stays, as after a resume."""
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

    def is_pieced(self, metric: str) -> bool:
        """Whether steps of `metric` are inferred in several logs: which value came first is not sure."""
        return len({row.source for row in self.series(metric)}.intersection(self.inferred)) > 1

    def is_unplaced(self, metric: str) -> bool:
        """Whether such logs hold other values, each counted from the start, as of a resumed process whose
        log does not say from which step it goes on."""
        if not self.is_pieced(metric):
            return False
        logs: dict[str, dict[int, float]] = {}
        for row in self.rows:
            if row.metric == metric and row.step is not None and row.source in self.inferred:
                logs.setdefault(row.source, {}).setdefault(row.step, row.value)
        begun = [sorted(log.items())[:2] for log in logs.values() if len(log) > 1]
        first = {value for (step, value), (following, _) in begun if step <= following - step}
        return len(first) > 1

    def logged_name(self, metric: str) -> str:
        """The name that `metric` was logged under."""
        return self.names.get(metric, metric)

    def as_logged(self) -> Table:
        """The table with each metric under the name that was logged, once."""
        if not self.names:
            return self
        rows = dict.fromkeys(row._replace(metric=self.logged_name(row.metric)) for row in self.rows)
        return replace(self, rows=tuple(rows), names={})

    def last_step(self) -> int | None:
        """The highest step that any metric was logged at."""
        return max(self._steps(), default=None)

    def steps_done(self) -> int:
        """How many steps the highest one makes: one more where what is logged oftenest counts from 0."""
        last = self.last_step() or 0
        at_last = {row.metric for row in self.rows if row.step == last and not WATCHED.search(row.metric)}
        steps = [{row.step for row in self.by_metric[name]} for name in at_last]
        most = max(map(len, steps), default=0)
        often = (logged for logged in steps if len(logged) == most)
        return last + all({0, 1} <= logged for logged in often) if last > 0 else last

    def first_step(self) -> int | None:
        """The lowest step that any metric was logged at."""
        return min(self._steps(), default=None)

    def _steps(self) -> Iterator[int]:
        watched = {name for name in self.metrics if WATCHED.search(name)}
        return (row.step for row in self.rows if row.step is not None and row.metric not in watched)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def concat(tables: Iterable[Table]) -> Table:
    """All rows and findings, in order."""
    parts = list(tables)
    return Table(
        tuple(row for table in parts for row in table.rows),
        tuple(finding for table in parts for finding in table.findings),
        max((table.planned for table in parts), default=0),
        tuple(source for table in parts for source in table.inferred),
        tuple(row for table in parts for row in table.aside),
        {asked: logged for table in parts for asked, logged in table.names.items()},
    )


def grouped(table: Table, prefix: str) -> Table:
    """The table with `prefix` before each metric's name; `only` is its inverse."""
    if not prefix:
        return table
    return replace(table, rows=tuple(row._replace(metric=f"{prefix}{row.metric}") for row in table.rows))


def only(table: Table, prefix: str) -> Table:
    """The metrics whose names begin with `prefix`, without it."""
    rows = (row for row in table.rows if row.metric.startswith(prefix))
    return Table(tuple(row._replace(metric=row.metric.removeprefix(prefix)) for row in rows))


def fullest(tables: Sequence[Table]) -> Table:
    """One table of sources that repeat each other: of each metric the source with the most steps.

    A step that is inferred counts less than one that a record names. Of equals the earlier source.
    `reward` and `train/reward` are one metric under two names.
    """
    best: dict[str, tuple[float, int]] = {}
    for order, table in enumerate(tables):
        for metric, rows in table.by_metric.items():
            stepped = (row for row in rows if row.step is not None)
            steps = math.fsum(INFERRED if row.source in table.inferred else 1.0 for row in stepped)
            best[plain_name(metric)] = max(best.get(plain_name(metric), (-1, 0)), (steps, -order))
    every = concat(tables)
    kept = (
        row for order, table in enumerate(tables) for row in table.rows
        if best[plain_name(row.metric)][1] == -order
    )  # fmt: skip
    return replace(every, rows=tuple(kept))


def prefer(first: Table, *others: Table) -> Table:
    """One table of several sources. The earlier table wins for the same metric and step."""
    rows = list(first.rows)
    for table in others:
        have = {(row.metric, row.step) for row in rows}
        rows.extend(row for row in table.rows if (row.metric, row.step) not in have)
    return replace(concat([first, *others]), rows=tuple(rows))


def continue_tables(tables: Iterable[Table]) -> Table:
    """The one table of a run with several attempts.

    An attempt that resumes at step 50 replaces the earlier rows from step 50 on. An attempt from the start
    replaces all earlier rows. The remaining metrics thus belong to the remaining weights.
    """
    parts = list(tables)
    rows: list[Row] = []
    for table in parts:
        first = table.first_step()
        if first is not None:
            rows = [row for row in rows if row.step is None or row.step < first]
        rows.extend(table.rows)
    return replace(concat(parts), rows=tuple(rows))
