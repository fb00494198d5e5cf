"""Conditions that end a run, and the reader of the event files that they are judged by."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.finding import JobspecError
from jobspec.metrics.requirements import parse_condition
from jobspec.runtime.base.event_files import DamagedError, records, scalars
from jobspec.runtime.head.metric_watch import Tripped, Watch, Watcher

ZERO = parse_condition("count(reward) >= 3 and max(reward) == 0 and max(tokens) > 0")
HIGH = parse_condition("max(diff) > 1", "weights arrive mixed up", "see the checkout")


def write_lines(folder: Path, *rows: dict[str, object], end: str = "\n") -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("\n".join(map(json.dumps, rows)) + end)


def event_files(folder: Path, rows: list[tuple[str, int, float]], *, as_tensor: bool = False) -> None:
    """What TensorBoard's own writer writes, in both forms of a scalar."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util.tensor_util import make_tensor_proto

    writer = EventFileWriter(str(folder))
    for tag, step, number in rows:
        value = Summary.Value(tag=tag, simple_value=number)
        if as_tensor:
            value = Summary.Value(tag=tag, tensor=make_tensor_proto(number, dtype="float32"))
        writer.add_event(Event(wall_time=1.0, step=step, summary=Summary(value=[value])))
    writer.close()


@pytest.mark.parametrize("as_tensor", [False, True])
def test_event_files_are_read_as_tensorboard_writes_them(tmp_path: Path, as_tensor: bool) -> None:
    rows = [("reward/avg", step, step / 2) for step in (0, 1, 300, 2**40)]
    event_files(tmp_path, rows, as_tensor=as_tensor)
    data = next(tmp_path.iterdir()).read_bytes()
    assert [row for _, record in records(data) for row in scalars(record)] == rows


def test_growing_file_gives_each_row_once(tmp_path: Path) -> None:
    event_files(tmp_path / "made", [("diff", 1, 0.2), ("diff", 2, 2.1)])
    data = next((tmp_path / "made").iterdir()).read_bytes()
    (tmp_path / "run").mkdir()
    growing = tmp_path / "run" / "events.out.tfevents.1"
    watch = Watch(tmp_path / "run", [HIGH])
    found: list[int] = []
    for size in range(0, len(data) + 1, 3):
        growing.write_bytes(data[:size])
        found += [size] if watch.look() else []
    growing.write_bytes(data)
    seen = watch.look()
    assert seen is not None
    assert (seen.step, [round(value, 3) for _, value in seen.values]) == (2, [2.1])
    assert len(found) <= 2  # only once the last record was whole


def test_all_terms_must_hold(tmp_path: Path) -> None:
    watch = Watch(tmp_path, [ZERO])
    write_lines(tmp_path, {"step": 1, "reward": 0.0, "tokens": 9}, {"step": 2, "reward": 0.0, "tokens": 9})
    assert watch.look() is None
    write_lines(tmp_path, {"step": 3, "data": {"reward": 0.0, "tokens": 0}}, end="")
    assert watch.look() is None  # the line is not whole yet
    write_lines(tmp_path, end="\n")
    seen = watch.look()
    assert seen is not None
    text = seen.finding().text()
    assert "at step 3: `count(reward)` is 3, `max(reward)` is 0, `max(tokens)` is 9" in text
    assert ZERO.text in text


def test_one_reward_is_enough_to_go_on(tmp_path: Path) -> None:
    watch = Watch(tmp_path, [ZERO])
    write_lines(tmp_path, *({"step": step, "reward": float(step == 2), "tokens": 9} for step in range(9)))
    assert watch.look() is None


def test_empty_answers_are_another_matter(tmp_path: Path) -> None:
    watch = Watch(tmp_path, [ZERO])
    write_lines(tmp_path, *({"step": step, "reward": 0.0, "tokens": 0} for step in range(9)))
    assert watch.look() is None


def test_what_is_no_number_ends_nothing(tmp_path: Path) -> None:
    watch = Watch(tmp_path, [HIGH, parse_condition("last(diff) != 0")])
    text = (
        '{"step": 1, "diff": NaN}\n[1]\n'
        '[1]\n{"step": NaN, "diff": 5}\n{"diff": "5"}\n{"step": 1, "diff": true}\n{\n'
    )
    (tmp_path / "metrics.jsonl").write_text(text)
    assert watch.look() is None


def test_a_damaged_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1").write_bytes(b"\xff" * 64)
    watch = Watch(tmp_path, [HIGH])
    assert watch.look() is None
    write_lines(tmp_path, {"step": 1, "diff": 2.0})
    assert watch.look() is not None


def test_thread_trips_once_and_closes(tmp_path: Path) -> None:
    found: list[Tripped] = []
    write_lines(tmp_path, {"step": 4, "diff": 3.0})
    watcher = Watcher(Watch(tmp_path, [HIGH]), found.append, poll_s=0.01)
    deadline = time.monotonic() + 60
    while not found and time.monotonic() < deadline:
        time.sleep(0.01)
    watcher.close()
    assert [one.step for one in found] == [4]


@given(st.binary(max_size=200))
def test_any_bytes_end_in_rows_or_a_named_error(data: bytes) -> None:
    try:
        for _, record in records(data):
            list(scalars(record))
    except DamagedError:
        pass


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_changed_byte_is_survived(at: int, byte: int) -> None:
    changed = bytearray(SAMPLE)
    changed[at % len(changed)] = byte
    try:
        found = [row for _, record in records(bytes(changed)) for row in scalars(record)]
    except DamagedError:
        return
    assert len(found) <= 2


# Two records without checksums: the version line, and `diff` = 2.0 at step 7.
SAMPLE = bytes.fromhex(
    "18000000000000000000000009000000000000f03f1a0d627261696e2e4576656e743a3200000000"
    "1a000000000000000000000009000000000000f03f10072a0d0a0b0a0464696666150000004000000000"
)  # fmt: skip


def test_sample_is_what_it_says() -> None:
    assert [row for _, record in records(SAMPLE) for row in scalars(record)] == [("diff", 7, 2.0)]


@pytest.mark.parametrize(
    "text", ["finite(loss)", "max(loss) > 1 and", "max(loss)", "max(loss) > 1 and finite(x)"]
)
def test_conditions_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(JobspecError):
        parse_condition(text)


def test_condition_names_the_training_that_it_is_about(tmp_path: Path) -> None:
    """Two trainings of one run log the same names: a condition on one is no condition on the other."""
    watch = Watch(tmp_path, [parse_condition("max(b/diff) > 1")])
    for name in ("@a", "@b"):
        (tmp_path / name).mkdir()
    write_lines(tmp_path / "@a", {"step": 1, "diff": 2.0})
    assert watch.look() is None
    write_lines(tmp_path / "@b", {"step": 4, "diff": 2.0})
    tripped = watch.look()
    assert tripped is not None
    assert (tripped.step, tripped.values) == (4, (("max(b/diff)", 2.0),))


@pytest.mark.parametrize("row", [{"step": 10**400, "diff": 0.1}, {"step": 1, "diff": 10**400, "x": [1]}])
def test_number_that_no_float_holds_ends_no_watch(tmp_path: Path, row: dict[str, object]) -> None:
    watch = Watch(tmp_path, [HIGH])
    write_lines(tmp_path, row)
    assert watch.look() is None
    write_lines(tmp_path, {"step": 2, "diff": 3.0})
    assert watch.look() is not None


def test_folder_that_cannot_be_listed_once_ends_no_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines(tmp_path, {"step": 2, "diff": 3.0})
    listed, found, failed = Path.rglob, list[Tripped](), list[Path]()

    def once(folder: Path, pattern: str) -> object:
        if not failed:
            failed.append(folder)
            raise OSError(116, "Stale file handle")
        return listed(folder, pattern)

    monkeypatch.setattr(Path, "rglob", once)
    watcher = Watcher(Watch(tmp_path, [HIGH]), found.append, poll_s=0.01)
    end = time.monotonic() + 60
    while not found and time.monotonic() < end:
        time.sleep(0.01)
    watcher.close()
    assert failed and found
