"""Readers of metric files: JSON lines, JSON dumps and TensorBoard event files.

Every reader streams and never raises for what a file holds: a torn or foreign line becomes a finding.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jobspec.finding import Finding, warning
from jobspec.metrics.table import Table, concat, grouped, prefer
from jobspec.runtime.base.event_files import EventDecoder
from jobspec.runtime.base.metric_files import (
    DUMP,
    EVENTS,
    LINES,
    LineDecoder,
    Row,
    files_below,
    group_prefix,
    is_number,
    kind_of,
)
from jobspec.runtime.base.run_files import open_file, read_bytes

BLOCK_BYTES = 4 * 1024**2


def read_metrics(folder: Path, relative_to: Path | None = None) -> Table:
    """All metrics below `folder`; an empty table when there are none.

    For a value in two kinds of files, JSON lines count before JSON dumps. In all our drivers TensorBoard's
    event files repeat the other files under names of their own: they are read only where no other file holds
    a step. A source below `relative_to` gets its relative path as name. Metrics below a folder `@NAME` are
    called `NAME/...`: each of several trainings has such a folder.
    """
    paths = files_below(folder)

    def read(kind: str) -> Table:
        of_kind = (path for path in paths if kind_of(path) == kind)
        return concat(
            grouped(read_file(path, _name(path, relative_to)), group_prefix(path, folder)) for path in of_kind
        )

    first = prefer(read(LINES), read(DUMP))
    # Rows without a step, such as the samples of GPUs, repeat nothing of what a driver logs.
    return first if first.last_step() is not None else prefer(first, read(EVENTS))


def read_file(path: Path, name: str = "") -> Table:
    """Metrics of one file, by the kind that its name says; an empty table for a file of no kind."""
    readers = {LINES: read_jsonl, DUMP: read_json, EVENTS: read_events}
    kind = kind_of(path)
    return readers[kind](path, name) if kind else Table()


def read_jsonl(path: Path, name: str = "") -> Table:
    """Metrics of a JSON lines file, ours or verl's file logger; a finding for each torn line."""
    source = name or str(path)
    decoder = LineDecoder(source)
    rows, trouble = _read(path, decoder)
    rows.extend(decoder.close())
    torn = [_unreadable(source, line, "the line is not whole JSON") for line in decoder.torn]
    return Table(tuple(rows), (*torn, *([_unreadable(source, 0, trouble)] if trouble else ())))


def read_events(path: Path, name: str = "") -> Table:
    """Scalars of one event file, and a warning where it is torn or damaged."""
    source = name or str(path)
    decoder = EventDecoder(source)
    rows, trouble = _read(path, decoder)
    if decoder.damage:
        trouble = f"damaged: {decoder.damage}"
    elif decoder.rest and not trouble:
        trouble = "the last record is not whole"
    what, fix = "TensorBoard events cannot be read in full", "use the metrics that were read"
    finding = warning("metrics.tensorboard", what, trouble, fix, file=source)
    return Table(tuple(rows), (finding,) if trouble else ())


def _read(path: Path, decoder: LineDecoder | EventDecoder) -> tuple[list[Row], str]:
    """The rows of a file, and why reading stopped before its end; empty when it did not."""
    rows: list[Row] = []
    try:
        with open_file(path) as file:
            while block := file.read(BLOCK_BYTES):
                rows.extend(decoder.feed(block))
    except OSError as why:
        return rows, why.strerror or type(why).__name__
    return rows, ""


def read_json(path: Path, name: str = "") -> Table:
    """Metrics of a JSON dump `{metric: {step: value}}`, as NeMo-RL's `json_dump_tb_logs.py` writes it."""
    source = name or str(path)
    try:
        data = json.loads(read_bytes(path))
    except OSError as why:
        return Table((), (_unreadable(source, 0, why.strerror or type(why).__name__),))
    except (ValueError, RecursionError) as why:
        return Table((), (_unreadable(source, 0, f"not whole JSON: {why}"),))
    if not isinstance(data, Mapping):
        return Table()
    return Table(tuple(_dump_rows(data, source)))


def _dump_rows(data: Mapping[str, Any], source: str) -> Iterator[Row]:
    for metric, series in data.items():
        if isinstance(series, Mapping):
            for step, value in series.items():
                if step.isdecimal() and len(step) <= 15 and (value is None or is_number(value)):
                    yield Row(
                        metric, int(step), float("nan") if value is None else float(value), None, source
                    )


def _unreadable(source: str, line: int, why: str) -> Finding:
    what, fix = "metrics cannot be read in full", "restore the file; missing values count as not logged"
    return warning("metrics.unreadable", what, why, fix, file=source, line=line)


def _name(path: Path, root: Path | None) -> str:
    return str(path.relative_to(root)) if root is not None and path.is_relative_to(root) else str(path)
