"""Readers of metric files: JSON lines, JSON dumps and TensorBoard event files; `trackers` has the others.

Every reader streams and never raises for what a file holds: a torn or foreign line becomes a finding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobspec.finding import Finding, warning
from jobspec.metrics import trackers
from jobspec.metrics.table import Table, concat, fullest, grouped, prefer
from jobspec.metrics.wandb_file import read_wandb
from jobspec.runtime.base.event_files import EventDecoder
from jobspec.runtime.base.metric_files import (
    DUMP,
    EVENTS,
    HISTORY,
    LINES,
    SERIES,
    TABLE,
    LineDecoder,
    Row,
    files_below,
    group_prefix,
    is_number,
    kind_of,
)
from jobspec.runtime.base.run_files import open_file

EVALUATED = re.compile(r"global_step_(\d{1,15})_evals")  # SkyRL's folder of the scores of one evaluation
BLOCK_BYTES = 4 * 1024**2
TOTAL = "total_steps"
MAX_JSON_BYTES = 256 * 1024**2  # parsed whole; a larger file is a data set


def read_metrics(folder: Path, relative_to: Path | None = None) -> Table:
    """All metrics below `folder`; an empty table when there are none.

    For a value in two kinds of files, JSON lines count before JSON dumps; of a metric that other kinds hold
    too, the fullest source counts. In all our drivers TensorBoard's event files repeat the other files under
    names of their own: they are read only where no other file holds a step. A source below `relative_to` gets
    its relative path as name. Metrics below a folder `@NAME` are called `NAME/...`: each of several trainings
    has such a folder.
    """
    return fullest(read_sources(folder, relative_to))


def read_sources(folder: Path, relative_to: Path | None = None) -> list[Table]:
    """The sources that may repeat each other, in the order of `read_metrics`."""
    paths: dict[str, list[Path]] = {}
    for path in trackers.newest_states(files_below(folder)):
        own = path.name if path.name in (trackers.STATE, trackers.SUMMARY) else kind_of(path)
        paths.setdefault(own, []).append(path)

    def read(*kinds: str) -> list[Table]:
        return [
            grouped(read_file(path, _name(path, relative_to)), group_prefix(path, folder))
            for kind in kinds
            for path in paths.get(kind, ())
        ]

    first = prefer(concat(read(LINES)), concat(read(DUMP)))
    others = read(trackers.STATE, HISTORY, TABLE, SERIES)
    # Rows without a step, such as the samples of GPUs, repeat nothing of what a driver logs.
    if all(table.last_step() is None for table in (first, *others)):
        first = prefer(first, concat(read(EVENTS)))
    return [first, *others, *read(trackers.SUMMARY)]


def read_file(path: Path, name: str = "") -> Table:
    """Metrics of one file, by the kind that its name says; an empty table for a file of no kind."""
    readers: dict[str, Callable[[Path, str], Table]] = {
        LINES: read_jsonl, DUMP: read_json, EVENTS: read_events, HISTORY: read_wandb,
        TABLE: trackers.read_csv, SERIES: trackers.read_series,
    }  # fmt: skip
    kind = kind_of(path)
    return readers[kind](path, name or str(path)) if kind else Table()


def read_jsonl(path: Path, name: str = "") -> Table:
    """Metrics of a JSON lines file, ours or verl's file logger; a finding for each torn line."""
    source = name or str(path)
    decoder = LineDecoder(source)
    rows, trouble = _read(path, decoder)
    rows.extend(decoder.close())
    if (evaluated := EVALUATED.fullmatch(path.parent.name)) is not None:
        rows = [row._replace(step=int(evaluated[1])) if row.step is None else row for row in rows]
    torn = [_unreadable(source, line, "the line is not whole JSON") for line in decoder.torn]
    findings = (*torn, *([_unreadable(source, 0, trouble)] if trouble else ()))
    return Table(tuple(rows), findings, planned=_announced(rows))


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
    """Metrics of a JSON file: the Trainer's state, wandb's summary, a list of records, or a dump.

    A dump is `{metric: {step: value}}`, as NeMo-RL's `json_dump_tb_logs.py` writes it.
    """
    source = name or str(path)
    try:
        with open_file(path) as file:
            text = file.read(MAX_JSON_BYTES + 1)
        if len(text) > MAX_JSON_BYTES:
            return Table((), (_unreadable(source, 0, f"more than {MAX_JSON_BYTES // 1024**2} MiB"),))
        data = json.loads(text)
        return Table(tuple(_json_rows(data, path.name, source)), planned=_planned(data))
    except OSError as why:
        return Table((), (_unreadable(source, 0, why.strerror or type(why).__name__),))
    except (ValueError, RecursionError) as why:
        return Table((), (_unreadable(source, 0, f"not whole JSON: {why}"),))


def _json_rows(data: Any, file_name: str, source: str) -> Iterator[Row]:
    history = data.get("log_history") if isinstance(data, Mapping) else data
    if isinstance(history, list):
        yield from trackers.read_history(history, source)
        yield from trackers.read_state(data, source) if isinstance(data, Mapping) else ()
    elif isinstance(data, Mapping):
        is_summary = file_name == trackers.SUMMARY
        yield from trackers.read_summary(data, source) if is_summary else _dump_rows(data, source)


def _announced(rows: Sequence[Row]) -> int:
    """The most steps that records announce, as those of LLaMA-Factory's `trainer_log.jsonl` do."""
    return max((int(row.value) for row in rows if row.metric == TOTAL and 0 < row.value < 2**53), default=0)


def _planned(data: Any) -> int:
    """The steps that the Trainer's state announces."""
    steps = data.get("max_steps") if isinstance(data, Mapping) else 0
    return steps if type(steps) is int and 0 < steps < 2**53 else 0


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
