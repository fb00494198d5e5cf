"""Metrics of a run that anybody made: what its files hold and what its logs print, each metric once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from jobspec.metrics.console import read_console
from jobspec.metrics.names import logged_name, plain_name
from jobspec.metrics.plain_lines import read_bars
from jobspec.metrics.readers import read_file, read_sources
from jobspec.metrics.several_runs import MIN_COMMON, SAME_STEPS, alike, several_runs
from jobspec.metrics.table import Table, concat, fullest
from jobspec.runtime.base.metric_files import Row

MANY = 4  # records a step: ranks and resumed runs repeat a step less often

COUNTS = ("update", "updates", "iter", "it", "episode", "episodes", "round", "epoch")  # for want of a step
MIN_KEPT, REGULAR = 3, 0.8
MIN_STEPS = 2  # a tracker's summary holds the last step alone


def read_found(place: Path, logs: Iterable[tuple[Path, str]], root: Path) -> Table:
    """Metrics of a folder or one file and of its logs, given as (path, name).

    Of a metric the fullest source counts; of equals, the files. Where a metric has steps, its values without
    one, such as a record of another program, are left out.
    """
    files = read_sources(place, relative_to=root) if place.is_dir() else [read_file(place, place.name)]
    logs = list(logs)
    sources = [
        *(without_samples(table) for table in files),
        concat(read_console(path, name) for path, name in logs),
    ]
    if len({row.step for table in sources for row in table if row.step is not None}) < MIN_STEPS:
        sources[-1] = concat(read_console(path, name, plain=True) for path, name in logs)
        sources = [counted(table) for table in sources]
    if not any(len(table) for table in sources):
        sources[-1] = concat(read_bars(path, name) for path, name in logs)
    sources = [*_placed(sources)]
    table = _continued(fullest(sources), sources)
    between = _between_values(table)
    stepped = {row.metric for row in table if row.step is not None}
    kept = tuple(
        row
        for row in table
        if (row.step is not None or row.metric not in stepped)
        and not (row.metric in between and math.isnan(row.value))
    )
    used = {(row.metric, row.source) for row in kept}
    aside = (row for source in sources for row in source if row.step is not None)
    return replace(
        table,
        rows=kept,
        findings=(*table.findings, *several_runs(sources)),
        aside=tuple(row for row in aside if (row.metric, row.source) not in used),
    )


def counted(table: Table) -> Table:
    """The table with the count of each record as its step, where no record of the file names one."""
    stepped = {row.source for row in table if row.step is not None}
    places: dict[str, dict[int, int]] = {}
    for name in COUNTS:
        counts: dict[str, dict[int, float]] = {}
        for row in table:
            if row.metric == name and row.source not in stepped and row.line:
                counts.setdefault(row.source, {})[row.line] = row.value
        for source, lines in counts.items():
            values = list(lines.values())
            whole = all(value.is_integer() and 0 <= value < 2**53 for value in values)
            if whole and len(values) >= MIN_KEPT and all(one < other for one, other in pairwise(values)):
                places.setdefault(source, {line: int(value) for line, value in lines.items()})
    rows = (row._replace(step=places.get(row.source, {}).get(row.line, row.step)) for row in table)
    return replace(table, rows=tuple(rows))


def _placed(sources: Sequence[Table]) -> Iterator[Table]:
    """The sources; a log that names no step, and begins with the values of a file that does, in their order,
    has that file's steps, and goes on at their distance."""
    named = [source for source in sources if not source.inferred]
    for source in sources:
        steps = {
            log: found for log in source.inferred if (found := _steps_of(source, log, named)) is not None
        }
        rows = (
            row._replace(step=steps.get(row.source, {}).get(row.step, row.step))
            if row.step is not None
            else row
            for row in source
        )
        yield replace(source, rows=tuple(rows)) if steps else source


def _steps_of(source: Table, log: str, files: Sequence[Table]) -> dict[int, int] | None:
    """The steps of the log's records by files that have the same values, by those that they were given; None
    where one has others, or where the log is of more than one process: an epoch that goes back shows that."""
    epochs = [row.value for row in source.series("epoch") if row.source == log]
    if any(then < one for one, then in pairwise(epochs)):
        return None
    found: dict[range, list[int]] = {}
    for file in files:
        for metric, rows in file.by_metric.items():
            own = [row for row in source.series(metric) if row.source == log and row.step is not None]
            same = _same_values(own, rows)
            if same is not None:
                found[same] = [row.step for row in own if row.step is not None]
    if len(found) != 1 or range(0) in found:
        return None
    steps, given = next(iter(found.items()))
    return dict(zip(given, steps, strict=True))


def _same_values(own: Sequence[Row], rows: Sequence[Row]) -> range | None:
    """The steps of records, by the file's rows; an empty range where values differ; None where these do not
    tell."""
    known = [(row.step, row.value) for row in rows if row.step is not None]
    given = [row.step for row in own if row.step is not None]
    if min(len(known), len(own)) < MIN_COMMON or any(b <= a for a, b in pairwise(given)):
        return None
    first, every = known[0][0], known[1][0] - known[0][0]
    same = [alike(row.value, value) for row, (_, value) in zip(own, known, strict=False)]
    if every < 2 or any(other[0] - one[0] != every for one, other in pairwise(known)):
        return None
    if len({value for _, value in known}) < MIN_COMMON:
        return None
    return range(first, first + every * len(own), every) if sum(same) >= SAME_STEPS * len(same) else range(0)


def _continued(table: Table, sources: Iterable[Table]) -> Table:
    """The table; of a metric whose file ends early also what a log that names no step shows behind it, where
    both hold the same values up to there."""
    inferred = frozenset(table.inferred)
    counted: dict[str, list[Row]] = {}
    for source in sources if inferred else ():
        for name, rows in source.by_metric.items():
            own = (row for row in rows if row.source in inferred and row.step is not None)
            counted.setdefault(plain_name(name), []).extend(own)
    more: list[Row] = []
    for metric, rows in table.by_metric.items() if counted else ():
        known = {row.step: row.value for row in rows if row.step is not None}
        if not known or any(row.source in inferred for row in rows):
            continue
        others = counted.get(plain_name(metric), [])
        common = [alike(row.value, known[row.step]) for row in others if row.step in known]
        if len(common) >= MIN_COMMON and sum(common) >= SAME_STEPS * len(common):
            last = max(known)
            more += (row._replace(metric=metric) for row in others if (row.step or 0) > last)
    return replace(table, rows=(*table.rows, *more)) if more else table


def _between_values(table: Table) -> set[str]:
    """Metrics with a value at every N-th step and `null` at the others, as tables of all metrics hold."""
    found = set()
    for metric, rows in table.by_metric.items():
        steps = [row.step for row in rows if row.step is not None]
        kept = [row.step for row in rows if row.step is not None and not math.isnan(row.value)]
        gaps = Counter(later - earlier for earlier, later in pairwise(kept))
        if len(kept) < MIN_KEPT or 2 * len(kept) > len(steps):
            continue
        gap, times = gaps.most_common(1)[0]
        if times >= REGULAR * (len(kept) - 1) and steps[-1] - kept[-1] < gap:
            found.add(metric)
    return found


def without_samples(table: Table) -> Table:
    """The table without values of single samples, where another file has one value a step for the metric.

    Files of completions hold step and reward as the metrics do, but many records a step.
    """
    seen: dict[str, dict[str, list[int | None]]] = {}
    for row in table:
        seen.setdefault(row.metric, {}).setdefault(row.source, []).append(row.step)
    dropped = set()
    for metric, sources in seen.items():
        many = {source for source, steps in sources.items() if len(steps) >= MANY * len(set(steps))}
        if len(many) < len(sources):
            dropped |= {(metric, source) for source in many}
    return replace(table, rows=tuple(row for row in table if (row.metric, row.source) not in dropped))


def as_asked(table: Table, own: Collection[str], asked: Collection[str]) -> Table:
    """The table with a framework's own names and those that people ask for.

    A person may ask for any framework's metric by a usual name. A name of either stays beside the other.
    """
    # A summary holds the last value alone: where another usual name has a series, it is no series of its own.
    lone = {name for name in (*own, *asked) if len(table.series(name)) == 1}
    series = [name for name in table.metrics if name not in lone]
    others = {name: logged_name(name, series) for name in asked}
    others.update({name: logged_name(name, series, any_family=False) for name in own})
    renamed = {logged: name for name, logged in others.items() if logged not in ("", name)}
    replaced = lone & set(renamed.values())
    rows = tuple(
        row._replace(metric=name)
        for row in table.rows
        if row.metric not in replaced
        for name in dict.fromkeys((renamed.get(row.metric, row.metric), row.metric))
        if name not in renamed or name in own or name in asked
    )
    return replace(table, rows=rows, names={name: logged for logged, name in renamed.items()})
