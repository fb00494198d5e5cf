"""Event files against TensorBoard's own writer and reader: whole, growing, torn and damaged."""

from __future__ import annotations

import math
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobspec.metrics import read_events
from jobspec.runtime.base.event_files import EventDecoder


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    board = pytest.importorskip("torch.utils.tensorboard", reason="needs torch and tensorboard")
    folder = tmp_path_factory.mktemp("events")
    writer = board.SummaryWriter(str(folder))
    for step in range(20):
        writer.add_scalar("train/loss", 1 / (step + 1), step, walltime=100.0 + step)
        writer.add_scalar("train/reward", step, step, new_style=True)
        writer.add_scalar("train/big", step, 2**40 + step, double_precision=True)
    writer.add_scalar("odd", math.nan, 3)
    writer.add_scalar("odd", math.inf, 4)
    writer.add_text("note", "no scalar", 1)
    writer.add_histogram("weights", __import__("numpy").arange(9), 1)
    writer.close()
    return next(folder.iterdir())


def own(path: Path) -> list[tuple[str, int | None, str, float | None]]:
    return [(row.metric, row.step, repr(row.value), row.wall_time) for row in read_events(path)]


def theirs(path: Path) -> list[tuple[str, int, str, float]]:
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    tensors = pytest.importorskip("tensorboard.util.tensor_util")
    found: list[tuple[str, int, str, float]] = []
    for event in loader.EventFileLoader(str(path)).Load():
        for value in event.summary.value:
            array: Any = tensors.make_ndarray(value.tensor) if value.HasField("tensor") else None
            if array is not None and array.ndim == 0 and array.dtype.kind in "fiu":
                found.append((value.tag, event.step, repr(float(array)), event.wall_time))
    return found


def test_values_are_those_of_tensorboards_own_reader(events: Path) -> None:
    assert own(events) == theirs(events)
    assert len(own(events)) == 62


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, 10**5), max_size=6))
def test_pieces_of_a_growing_file_give_the_whole(events: Path, cuts: list[int]) -> None:
    data = events.read_bytes()
    reader = EventDecoder()
    edges = [0, *sorted(cut % len(data) for cut in cuts), len(data)]
    rows = [row for start, end in pairwise(edges) for row in reader.feed(data[start:end])]
    assert [(row.metric, row.step) for row in rows] == [(tag, step) for tag, step, *_ in own(events)]
    assert reader.rest == b""


def test_torn_file_gives_what_is_whole_and_says_so(events: Path, tmp_path: Path) -> None:
    path = tmp_path / "events.tfevents.1"
    path.write_bytes(events.read_bytes()[:2000])
    table = read_events(path)
    assert 0 < len(table) < 62
    assert table.findings[0].why == "the last record is not whole"


@pytest.mark.parametrize("data", [b"no event file at all", struct.pack("<Q", 2**60) + bytes(40)])
def test_other_files_are_a_finding(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.tfevents"
    path.write_bytes(data)
    assert [item.rule for item in read_events(path).findings] == ["metrics.tensorboard"]


def test_absent_file_is_a_finding(tmp_path: Path) -> None:
    assert read_events(tmp_path / "no").findings[0].why == "No such file or directory"


@given(st.binary(max_size=200))
def test_any_record_is_read_or_refused(body: bytes) -> None:
    reader = EventDecoder()
    rows = reader.feed(struct.pack("<Q", len(body)) + bytes(4) + body + bytes(4))
    assert reader.rest == b""
    assert all(isinstance(row.value, float) for row in rows)
