"""Metric files: ours, verl's file logger, NeMo-RL's dump, TensorBoard; whole, torn and absent."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.metrics import Row, Table, continue_tables, only, read_json, read_jsonl, read_metrics

FIXTURES = Path(__file__).parents[1] / "fixtures"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("step", "read"), [("3", 3), ("3.0", 3), ("3.5", None), ("1e400", None), ("NaN", None)]
)
def test_step_is_a_whole_number(step: str, read: int | None, tmp_path: Path) -> None:
    """`3.5` under such a name is an epoch: it was taken for step 3."""
    path = write(tmp_path / "m.jsonl", f'{{"step": {step}, "loss": 0.5}}\n')
    assert [row.step for row in read_jsonl(path)] == [read]


def test_our_lines_become_rows_with_place(tmp_path: Path) -> None:
    path = write(
        tmp_path / "metrics.jsonl", '{"step": 3, "time": 9.5, "loss": 0.25, "note": "x", "ok": true}\n'
    )
    assert read_jsonl(path, "m.jsonl").rows == (Row("loss", 3, 0.25, 9.5, "m.jsonl", 1),)


def test_verl_file_logger_is_read_whole() -> None:
    table = read_jsonl(FIXTURES / "verl_file_logger_example.jsonl")
    assert table.last_step() == 20
    assert len(table.series("actor/grad_norm")) == 20
    assert table.series("val-core/openai/gsm8k/acc/mean@1")[0].step == 0
    assert not table.findings


def test_seconds_of_nemo_rls_watch_over_ray_are_no_steps(tmp_path: Path) -> None:
    """`ray/ray/ray_step` counts seconds: of a run that died at its start it said "train step 106"."""
    watch = {"ray/node.0.gpu.0.util": {"0": 0.0, "106": 0.0}, "ray/ray/ray_step": {"0": 0.0, "106": 106.0}}
    path = write(tmp_path / "metrics.json", json.dumps(watch))
    assert (read_json(path).first_step(), read_json(path).last_step()) == (None, None)
    path = write(tmp_path / "metrics.json", json.dumps(watch | {"train/reward": {"1": 0.5, "2": 0.6}}))
    assert (read_json(path).first_step(), read_json(path).last_step()) == (1, 2)


def test_nemo_rl_dump_is_read_whole() -> None:
    table = read_json(FIXTURES / "nemo_rl_metrics_example.json")
    assert [row.value for row in table.series("performance/tokens_per_sec")] == [
        71.7673568725586,
        458.8201599121094,
    ]
    assert len(table.metrics) == 82


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "null"])
def test_values_that_are_not_finite_are_kept(tmp_path: Path, word: str) -> None:
    table = read_jsonl(write(tmp_path / "m.jsonl", f'{{"step": 1, "loss": {word}}}\n'))
    assert not math.isfinite(table.values("loss")[0])
    assert table.values("loss", finite=True) == []


def test_nested_objects_join_their_names(tmp_path: Path) -> None:
    table = read_jsonl(write(tmp_path / "m.jsonl", '{"step": 1, "train": {"kl": {"mean": 2}}}\n'))
    assert table.rows[0].metric == "train/kl/mean"


def test_torn_last_line_is_a_finding_not_an_error(tmp_path: Path) -> None:
    table = read_jsonl(write(tmp_path / "m.jsonl", '{"step": 1, "a": 1}\n{"step": 2, "a'))
    assert table.values("a") == [1.0]
    assert [(finding.rule, finding.line) for finding in table.findings] == [("metrics.unreadable", 2)]


def test_absent_file_is_a_finding(tmp_path: Path) -> None:
    assert read_jsonl(tmp_path / "no.jsonl").findings[0].why == "No such file or directory"


def test_absent_folder_is_an_empty_table(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "no") == Table()


@pytest.mark.parametrize(
    "text", ["[1, 2]", "3", '{"step": 1e999, "a": 1}', '{"step": 1' + "0" * 400 + ', "a": 2}']
)
def test_foreign_json_gives_no_wrong_step(tmp_path: Path, text: str) -> None:
    table = read_jsonl(write(tmp_path / "m.jsonl", text + "\n"))
    assert all(row.step is None for row in table)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = Path(folder, "m.jsonl")
        path.write_bytes(data)
        read_jsonl(path)
        read_json(path)


def test_later_value_of_a_step_wins() -> None:
    table = Table((Row("a", 1, 1.0), Row("a", 2, 2.0), Row("a", 2, 5.0)))
    assert table.values("a") == [1.0, 5.0]


def test_resumed_attempt_replaces_from_its_first_step() -> None:
    first = Table(tuple(Row("a", step, 1.0) for step in range(1, 8)))
    second = Table(tuple(Row("a", step, 2.0) for step in range(5, 7)))
    assert continue_tables([first, second]).values("a") == [1.0, 1.0, 1.0, 1.0, 2.0, 2.0]


def test_attempt_without_metrics_replaces_nothing() -> None:
    first = Table((Row("a", 1, 1.0),))
    assert continue_tables([first, Table()]).values("a") == [1.0]


def test_event_files_are_read_where_nothing_else_is(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard", reason="needs torch and tensorboard")
    writer = tensorboard.SummaryWriter(str(tmp_path))
    writer.add_scalar("train/reward", 0.5, 3, walltime=9.0)
    writer.close()
    (row,) = read_metrics(tmp_path).rows
    assert (row.metric, row.step, row.value, row.wall_time) == ("train/reward", 3, 0.5, 9.0)
    write(tmp_path / "metrics.jsonl", json.dumps({"step": 4, "reward": 1}) + "\n")
    assert read_metrics(tmp_path).metrics == ("reward",)


def test_torn_event_file_gives_what_is_whole(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard", reason="needs torch and tensorboard")
    writer = tensorboard.SummaryWriter(str(tmp_path))
    for step in range(20):
        writer.add_scalar("a", step, step)
    writer.close()
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-7])
    assert 0 < len(read_metrics(tmp_path)) < 20


def test_trainings_of_one_run_keep_their_metrics_apart(tmp_path: Path) -> None:
    for name, loss in (("a", 1.0), ("b", 2.0)):
        write(tmp_path / f"metrics/@{name}/deep/m.jsonl", json.dumps({"step": 1, "train/loss": loss}) + "\n")
    write(tmp_path / "metrics/plain/m.jsonl", '{"step": 1, "train/loss": 3.0}\n')
    write(tmp_path / "metrics/@b/m.json", '{"train/loss": {"2": 4.0}}')
    table = read_metrics(tmp_path / "metrics", tmp_path)
    assert {row.metric: row.value for row in table if row.step == 1} == {
        "a/train/loss": 1.0, "b/train/loss": 2.0, "train/loss": 3.0,
    }  # fmt: skip
    assert only(table, "b/").values("train/loss") == [2.0, 4.0]
    assert table.series("a/train/loss")[0].source == "metrics/@a/deep/m.jsonl"
