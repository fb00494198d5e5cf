"""Metrics of a run that anybody made: what its files hold and what its logs print, each metric once."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from jobspec.metrics.console import read_console
from jobspec.metrics.names import logged_name
from jobspec.metrics.readers import read_file, read_sources
from jobspec.metrics.several_runs import several_runs
from jobspec.metrics.table import Table, concat, fullest

MANY = 4  # records a step: ranks and resumed runs repeat a step less often


def read_found(place: Path, logs: Iterable[tuple[Path, str]], root: Path) -> Table:
    """Metrics of a folder or one file and of its logs, given as (path, name).

    Of a metric the fullest source counts; of equals, the files. Where a metric has steps, its values without
    one, such as a record of another program, are left out.
    """
    files = read_sources(place, relative_to=root) if place.is_dir() else [read_file(place, place.name)]
    sources = [
        *(without_samples(table) for table in files),
        concat(read_console(path, name) for path, name in logs),
    ]
    table = fullest(sources)
    stepped = {row.metric for row in table if row.step is not None}
    kept = tuple(row for row in table if row.step is not None or row.metric not in stepped)
    return replace(table, rows=kept, findings=(*table.findings, *several_runs(sources)))


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


def as_asked(table: Table, own: Collection[str], asked: Collection[str]) -> tuple[Table, dict[str, str]]:
    """The table with a framework's own names and those that people ask for, and what these replace.

    A person may ask for any framework's metric by a usual name.
    """
    # A summary holds the last value alone: where another usual name has a series, it is no series of its own.
    lone = {name for name in (*own, *asked) if len(table.series(name)) == 1}
    series = [name for name in table.metrics if name not in lone]
    others = {name: logged_name(name, series) for name in asked}
    others.update({name: logged_name(name, series, any_family=False) for name in own})
    renamed = {logged: name for name, logged in others.items() if logged not in ("", name)}
    replaced = lone & set(renamed.values())
    rows = tuple(
        row._replace(metric=renamed.get(row.metric, row.metric))
        for row in table.rows
        if row.metric not in replaced
    )
    return replace(table, rows=rows), {name: logged for logged, name in renamed.items()}
