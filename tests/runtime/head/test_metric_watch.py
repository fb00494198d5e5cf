"""Conditions on metrics that end a run under way."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.metrics.requirements import parse_condition
from jobspec.runtime.head.metric_watch import Tripped, Watch, Watcher

ZERO = parse_condition("count(reward) >= 3 and max(reward) == 0 and max(tokens) > 0")
HIGH = parse_condition("max(diff) > 1", "weights arrive mixed up", "see the checkout")


def write_lines(folder: Path, *rows: dict[str, object], end: str = "\n") -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("\n".join(map(json.dumps, rows)) + end)


def event_files(folder: Path, rows: list[tuple[str, int, float]]) -> None:
    """What TensorBoard's own writer writes."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    for tag, step, number in rows:
        value = Summary.Value(tag=tag, simple_value=number)
        writer.add_event(Event(wall_time=1.0, step=step, summary=Summary(value=[value])))
    writer.close()


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
    whole = (tmp_path / "metrics.jsonl").read_text()
    (tmp_path / "metrics.jsonl").write_text(whole[:-1])
    assert watch.look() is None  # the record is not whole yet
    (tmp_path / "metrics.jsonl").write_text(whole)
    seen = watch.look()
    assert seen is not None
    text = seen.finding().text()
    assert "at step 3: `count(reward)` is 3, `max(reward)` is 0, `max(tokens)` is 9" in text
    assert ZERO.text in text


def test_one_reward_is_enough_to_go_on(tmp_path: Path) -> None:
    watch = Watch(tmp_path, [ZERO])
    write_lines(tmp_path, *({"step": step, "reward": float(step == 2), "tokens": 9} for step in range(9)))
    assert watch.look() is None


def test_records_without_a_step_are_points_of_their_own(tmp_path: Path) -> None:
    """They were all taken for step 0, so that five counted as one and the condition never held."""
    watch = Watch(tmp_path, [parse_condition("count(score) >= 5")])
    write_lines(tmp_path, *({"score": number} for number in range(4)))
    assert watch.look() is None
    write_lines(tmp_path, {"score": 4})
    tripped = watch.look()
    assert tripped is not None
    assert (tripped.step, tripped.values) == (None, (("count(score)", 5.0),))
    assert tripped.finding().what == "the run was ended: `count(score)` is 5"


def test_file_that_was_written_anew_is_judged_anew(tmp_path: Path) -> None:
    watch = Watch(tmp_path, [HIGH])
    write_lines(tmp_path, {"step": 1, "diff": 0.1}, {"step": 2, "diff": 3.0})
    assert watch.look() is not None
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "diff": 0.2}\n')
    assert watch.look() is None


def test_empty_answers_are_another_matter(tmp_path: Path) -> None:
    watch = Watch(tmp_path, [ZERO])
    write_lines(tmp_path, *({"step": step, "reward": 0.0, "tokens": 0} for step in range(9)))
    assert watch.look() is None


def test_what_is_no_number_ends_nothing(tmp_path: Path) -> None:
    watch = Watch(tmp_path, [HIGH, parse_condition("last(diff) != 0")])
    text = (
        '{"step": 1, "diff": NaN}\n[1]\n'
        '[1]\n{"step": NaN, "diff": null}\n{"diff": "5"}\n{"step": 1, "diff": true}\n{\n'
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
    listed, found, failed = os.scandir, list[Tripped](), list[str]()

    def once(folder: str) -> object:
        if not failed:
            failed.append(folder)
            raise OSError(116, "Stale file handle")
        return listed(folder)

    monkeypatch.setattr(os, "scandir", once)
    watcher = Watcher(Watch(tmp_path, [HIGH]), found.append, poll_s=0.01)
    end = time.monotonic() + 60
    while not found and time.monotonic() < end:
        time.sleep(0.01)
    watcher.close()
    assert failed and found
