"""Readers of metric files: JSON lines, JSON dumps and TensorBoard event files.

Every reader streams and never raises for what a file holds: a torn or foreign line becomes a finding.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from jobspec.finding import Finding, warning
from jobspec.metrics.event_files import read_events
from jobspec.metrics.table import Row, Table, concat, grouped, prefer
from jobspec.runtime.base.metric_groups import group_prefix

MAX_FINDINGS = 5  # per file: the sixth torn line says nothing new
STEP_KEYS = ("step", "train_step", "global_step", "training/global_step", "_step")
TIME_KEYS = ("time", "wall_time", "timestamp", "_timestamp")


def read_metrics(folder: Path, relative_to: Path | None = None) -> Table:
    """All metrics below `folder`; an empty table when there are none.

    Where two kinds of files hold one value, JSON lines count before JSON dumps. TensorBoard's event files
    repeat them in all drivers of ours, under names of their own: they are read only where nothing else held a
    metric. Sources are named relative to `relative_to` where they lie below it. Metrics below a folder
    `@NAME` are called `NAME/...`: each of several trainings has its own.
    """
    files = sorted(Path(base, name) for base, _, names in os.walk(folder) for name in names)

    def read(reader: Callable[[Path, str], Table], path: Path) -> Table:
        return grouped(reader(path, _name(path, relative_to)), group_prefix(path, folder))

    lines = [read(read_jsonl, path) for path in files if path.suffix == ".jsonl"]
    dumps = [read(read_json, path) for path in files if path.suffix == ".json"]
    events = [path for path in files if "tfevents" in path.name]
    # Rows without a step, such as the samples of GPUs, repeat nothing of what a driver logs.
    if not events or any(table.last_step() is not None for table in (*lines, *dumps)):
        return prefer(concat(lines), concat(dumps))
    found = [read(read_events, path) for path in events]
    return prefer(concat(lines), concat(dumps), concat(found))


def read_jsonl(path: Path, name: str = "") -> Table:
    """Metrics of a JSON lines file, ours or verl's file logger.

    Ours holds `{"step": 1, "time": 1.7e9, "loss": 0.3}`, verl's `{"step": 1, "data": {"loss": 0.3}}`. `NaN`,
    `Infinity` and `null` are accepted as values. Source: verl `utils/tracking.py`, FileLogger.
    """
    rows: list[Row] = []
    findings: list[Finding] = []
    source = name or str(path)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    _read_record(line, source, number, rows, findings)
    except OSError as why:
        findings.append(_unreadable(source, 0, why.strerror or type(why).__name__))
    return Table(tuple(rows), tuple(findings))


def read_json(path: Path, name: str = "") -> Table:
    """Metrics of a JSON dump `{metric: {step: value}}`, as NeMo-RL's `json_dump_tb_logs.py` writes it."""
    source = name or str(path)
    try:
        data = json.loads(path.read_bytes())
    except OSError as why:
        return Table((), (_unreadable(source, 0, why.strerror or type(why).__name__),))
    except (ValueError, RecursionError) as why:
        return Table((), (_unreadable(source, 0, f"not whole JSON: {why}"),))
    if not isinstance(data, Mapping):
        return Table()
    return Table(tuple(_dump_rows(data, source)))


def record_rows(line: bytes) -> Iterator[Row]:
    """Rows of one JSON line; none where it is torn or no record."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return
    if isinstance(data, Mapping):
        yield from _record_rows(data, "", 0)


def _read_record(line: bytes, source: str, number: int, rows: list[Row], findings: list[Finding]) -> None:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        if len(findings) < MAX_FINDINGS:
            findings.append(_unreadable(source, number, "the line is not whole JSON"))
        return
    if isinstance(data, Mapping):
        rows.extend(_record_rows(data, source, number))


def _record_rows(data: Mapping[str, Any], source: str, line: int) -> Iterator[Row]:
    step = next((data[key] for key in STEP_KEYS if _is_step(data.get(key))), None)
    time = next((float(data[key]) for key in TIME_KEYS if _is_number(data.get(key))), None)
    inner = data.get("data")
    values = inner if isinstance(inner, Mapping) else data
    skip = {*STEP_KEYS, *TIME_KEYS} if values is data else set()
    for metric, value in flatten(values):
        if metric not in skip:
            yield Row(metric, None if step is None else int(step), value, time, source, line)


def flatten(data: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, float]]:
    """Numbers of nested objects, their names joined by `/`; `null` is NaN, text and lists are left out."""
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from flatten(value, f"{name}/")
        elif value is None:
            yield name, float("nan")
        elif _is_number(value):
            yield name, float(value)


def _dump_rows(data: Mapping[str, Any], source: str) -> Iterator[Row]:
    for metric, series in data.items():
        if isinstance(series, Mapping):
            for step, value in series.items():
                if step.isdecimal() and len(step) <= 15 and (value is None or _is_number(value)):
                    yield Row(
                        metric, int(step), float("nan") if value is None else float(value), None, source
                    )


def _is_number(value: object) -> bool:
    # JSON has integers of any length; float() of one beyond 1e308 overflows.
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return isinstance(value, float) or abs(value) < 2**1000


def _is_step(value: object) -> bool:
    """A whole number; `3.5` under such a name is an epoch or a time, and no step."""
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole and not isinstance(value, bool) and abs(cast(float, value)) < 2**53


def _unreadable(source: str, line: int, why: str) -> Finding:
    return warning("metrics.unreadable", "metrics cannot be read in full", why,
                   "what is missing counts as not logged", file=source, line=line)  # fmt: skip


def _name(path: Path, root: Path | None) -> str:
    return str(path.relative_to(root)) if root is not None and path.is_relative_to(root) else str(path)
