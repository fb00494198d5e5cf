"""Readers of what trackers and trainers leave: the Trainer's state, wandb's summary, MLflow's series, CSV.

Sources: transformers `trainer_callback.py`, TrainerState; wandb `sdk/lib/filenames.py`; MLflow
`store/tracking/file_store.py`. No reader raises for what a file holds.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from jobspec.log_text import to_number
from jobspec.metrics.table import Table
from jobspec.runtime.base.metric_files import SERIES_FOLDER, STEP_KEYS, Row, record_rows
from jobspec.runtime.base.run_files import open_file

# `meta.yaml` of a run of MLflow. Source: mlflow `entities/run_status.py`.
STATUS_LINE = re.compile(r"^status: *['\"]?(\w+)", re.MULTILINE)
NOT_FINISHED = {"1": "RUNNING", "4": "FAILED", "5": "KILLED"}
NOT_FINISHED |= {word: word for word in NOT_FINISHED.values()}
STATE, SUMMARY = "trainer_state.json", "wandb-summary.json"
LOGS_EVERY = "trainer_state/logging_steps"
CHECKPOINT = re.compile(r"checkpoint-(\d{1,15})$")
STEP_COLUMNS = (*STEP_KEYS, "steps", "epoch")  # the first of these that a header has
SERIES_LINE = re.compile(rb"(\d{10,16}) (\S{1,40}) (-?\d{1,15})\r?$")
MAX_LINE_BYTES = 64 * 1024
SEPARATORS = ",;\t"
TAG = "-tag-"  # TensorBoard's page names a downloaded series `run-NAME-tag-METRIC.csv`


def newest_states(paths: Iterable[Path]) -> list[Path]:
    """All paths, but of one training's `trainer_state.json` only its own, else that of its newest checkpoint.

    Each checkpoint repeats the history of all steps before it. A torn file counts only where no other is.
    """
    kept: dict[Path, tuple[tuple[bool, float], Path]] = {}
    for path in paths:
        step = CHECKPOINT.match(path.parent.name) if path.name == STATE else None
        place = path if step is None else path.parent.parent / STATE
        rank = (path.name != STATE or _is_whole(path), float("inf") if step is None else int(step[1]))
        if place not in kept or rank > kept[place][0]:
            kept[place] = rank, path
    return [path for _, path in kept.values()]


def _is_whole(path: Path) -> bool:
    """Whether the end of a JSON object ends the file."""
    try:
        with open_file(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 64))
            return file.read().rstrip().endswith(b"}")
    except OSError:
        return False


def read_history(data: Sequence[Any], source: str) -> Iterator[Row]:
    """Records in a list, such as `log_history` of the Trainer."""
    for record in data:
        if isinstance(record, Mapping):
            yield from record_rows(record, source)


def read_state(data: Mapping[str, Any], source: str) -> Iterator[Row]:
    """Where the Trainer stood when it wrote its state, and each how many steps it logs: of the last ones it
    may have logged none."""
    step, every = data.get("global_step"), data.get("logging_steps")
    if type(step) is int and type(every) is int and 0 < step < 2**53 and 0 < every < 2**53:
        yield Row(LOGS_EVERY, step, float(every), None, source)


def read_summary(data: Mapping[str, Any], source: str) -> Iterator[Row]:
    """wandb's summary: the last value of each metric. Keys with `_` are wandb's own."""
    for row in record_rows(data, source):
        if not row.metric.startswith("_"):
            yield row


def read_csv(path: Path, source: str) -> Table:
    """The numbers of a table whose header names a step; of other tables nothing, since they hold data."""
    try:
        with open_file(path) as file:
            text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
            head = text.readline(MAX_LINE_BYTES)
            pieces = chain([head], iter(lambda: text.readline(MAX_LINE_BYTES), ""))
            mark = max(SEPARATORS, key=head.count)
            lines = csv.reader((piece.replace("\0", "") for piece in pieces), delimiter=mark)
            header = [_column(name, path) for name in next(lines, [])]
            names = [name.lower() for name in header]
            step = next((names.index(name) for name in STEP_COLUMNS if name in names), None)
            return Table() if step is None else Table(tuple(_csv_rows(lines, header, step, source)))
    except (OSError, csv.Error):
        return Table()


def _column(name: str, path: Path) -> str:
    """The metric of a column: wandb writes the run before it, TensorBoard names it in the file's name."""
    metric = name.rpartition(" - ")[2].strip()
    return path.stem.rpartition(TAG)[2] if metric == "Value" and TAG in path.stem else metric


def _csv_rows(lines: Iterable[list[str]], header: list[str], at: int, source: str) -> Iterator[Row]:
    known = [
        (column, name) for column, name in enumerate(header)
        if name and name.lower() not in STEP_COLUMNS and not name.endswith(("__MIN", "__MAX"))
    ]  # fmt: skip
    for number, cells in enumerate(lines, 2):
        step = to_number(cells[at]) if at < len(cells) else None
        if step is None or not step.is_integer() or abs(step) >= 2**53:
            continue
        for column, name in known:
            value = to_number(cells[column]) if column < len(cells) else None
            if value is not None:
                yield Row(name, int(step), value, None, source, number)


def mlflow_ends(root: Path, sources: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The folder of each run of MLflow that did not end well by its own record, and that word."""
    parts = {source.partition(f"/{SERIES_FOLDER}/") for source in sources}
    for folder in sorted(name for name, found, _ in parts if found):
        with suppress(OSError):
            found = STATUS_LINE.search((root / folder / "meta.yaml").read_text("utf-8", "replace"))
            if found is not None and found[1] in NOT_FINISHED:
                yield folder, NOT_FINISHED[found[1]]


def read_series(path: Path, source: str) -> Table:
    """One metric of MLflow: lines of `milliseconds value step`; of any other file nothing."""
    parts = path.parts[:-1]
    at = len(parts) - 1 - parts[::-1].index(SERIES_FOLDER)
    metric = "/".join(path.parts[at + 1 :])
    rows = []
    try:
        with open_file(path) as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                match = SERIES_LINE.match(line.rstrip(b"\n"))
                value = to_number(match[2].decode("utf-8", "replace")) if match is not None else None
                if match is None or value is None:
                    if number == 1:
                        break
                    continue
                rows.append(Row(metric, int(match[3]), value, int(match[1]) / 1000, source, number))
    except OSError:
        pass
    return Table(tuple(rows))
