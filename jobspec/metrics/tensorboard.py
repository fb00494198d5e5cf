"""TensorBoard event files, by TensorBoard's own reader where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from jobspec.finding import Finding, warning
from jobspec.metrics.table import Row, Table


def read_events(path: Path, name: str = "") -> Table:
    """Scalars of one event file; a warning instead when TensorBoard is not installed or the file is torn."""
    source = name or str(path)
    try:
        loader = import_module("tensorboard.backend.event_processing.event_file_loader")
    except ImportError:
        return Table((), (_finding(source, "tensorboard is not installed", "pip install tensorboard"),))
    rows: list[Row] = []
    findings: list[Finding] = []
    try:
        for event in loader.EventFileLoader(str(path)).Load():
            rows.extend(_rows(event, source))
    except Exception as why:  # noqa: BLE001 - the reader raises its own, protobuf's and TensorFlow-stub errors
        findings.append(_finding(source, f"{type(why).__name__}: {why}", "use the metrics that were read"))
    return Table(tuple(rows), tuple(findings))


def _rows(event: Any, source: str) -> Iterator[Row]:
    for value in event.summary.value:
        number = _scalar(value)
        if number is not None:
            yield Row(value.tag, int(event.step), number, float(event.wall_time), source)


def _scalar(value: Any) -> float | None:
    """The loader turns old `simple_value` scalars into tensors of one number."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor") or value.tensor.tensor_shape.dim:
        return None
    array = import_module("tensorboard.util.tensor_util").make_ndarray(value.tensor)
    return float(array) if array.dtype.kind in "fiu" else None


def _finding(source: str, why: str, fix: str) -> Finding:
    return warning("metrics.tensorboard", "TensorBoard events cannot be read in full", why, fix, file=source)
