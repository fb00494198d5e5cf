"""Logs and trackers' files of any origin give each metric once, with its steps."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.evidence.found_logs import find_logs
from jobspec.metrics import Row, Table, parse_console, read_console
from jobspec.metrics.found import as_asked, read_found
from jobspec.metrics.names import logged_name
from tests.kits.found_runs import FOUND_RUNS, FoundRun, bar, logged, trainer_state
from tests.kits.found_runs_more import MORE_FOUND_RUNS, wandb_bytes
from tests.kits.found_runs_third import THIRD_FOUND_RUNS


def found(folder: Path) -> Table:
    with TemporaryDirectory() as unpacked:
        logs, _ = find_logs(folder, Path(unpacked))
        return read_found(folder, [(log.path, log.name) for log in logs], folder)


@pytest.mark.parametrize("run", (*FOUND_RUNS, *MORE_FOUND_RUNS, *THIRD_FOUND_RUNS), ids=lambda run: run.name)
def test_every_point_counts_once(run: FoundRun, tmp_path: Path) -> None:
    table = found(run.write(tmp_path))
    rows = table.series(logged_name(run.metric, table.metrics))
    ends = [(row.step, row.value) for row in (rows[0], rows[-1])]
    assert (len(rows), *ends, table.planned) == (run.points, run.first, run.last, run.planned)


def console(tmp_path: Path, *lines: str) -> Table:
    path = tmp_path / "train.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return read_console(path)


def steps(table: Table, metric: str = "reward") -> list[int | None]:
    return [row.step for row in table.series(metric)]


def test_stated_logging_steps_count_where_no_bar_moves(tmp_path: Path) -> None:
    table = console(tmp_path, "python train.py --logging_steps 5", str(logged(5)), str(logged(10)))
    assert steps(table) == [5, 10]


def test_stated_logging_steps_that_lead_beyond_the_end_do_not_count(tmp_path: Path) -> None:
    """They are another trainer's: this one's bar ends at 3."""
    lines = ["logging_steps=500", *(str(logged(step)) for step in (1, 2, 3)), bar(3, 3)]
    assert steps(console(tmp_path, *lines)) == [1, 2, 3]


def test_bar_of_another_program_says_nothing(tmp_path: Path) -> None:
    other = "Processed prompts: 100%|███| 64/64 [00:01<00:00, 50.1it/s]"
    assert steps(console(tmp_path, other, str(logged(1)), other, str(logged(2)))) == [1, 2]


def test_resumed_training_goes_on_at_the_step_of_its_bar(tmp_path: Path) -> None:
    table = console(tmp_path, bar(50, 90), bar(51, 90), str(logged(51)), bar(52, 90), str(logged(52)))
    assert (steps(table), table.planned) == ([51, 52], 90)


def test_training_that_begins_anew_counts_anew(tmp_path: Path) -> None:
    begin = "***** Running training *****"
    lines = [begin, *(str(logged(s)) for s in (1, 2, 3)), begin, *(str(logged(s)) for s in (1, 2))]
    assert steps(console(tmp_path, *lines)) == [1, 2, 3]


def test_each_node_prints_the_same_dict(tmp_path: Path) -> None:
    lines = [line for step in (1, 2, 3) for line in [str(logged(step))] * 2]
    assert steps(console(tmp_path, *lines)) == [1, 2, 3]


def test_equal_dicts_of_a_spoilt_policy_are_steps(tmp_path: Path) -> None:
    lines = []
    for at in range(1, 161):
        loss, norm = (2.0, 1.8) if at == 1 else (0.0, "nan")
        lines.append(f"{{'loss': {loss}, 'grad_norm': {norm}, 'epoch': {at / 160:.2f}}}")
        lines.append(bar(at, 160))
    assert steps(console(tmp_path, *lines), "grad_norm") == [*range(1, 161)]


def test_equal_dicts_of_a_frozen_policy_are_steps(tmp_path: Path) -> None:
    line = "{'loss': 0.0, 'grad_norm': 0.0, 'reward': 0.0, 'epoch': 0.01}"
    assert steps(console(tmp_path, line, line, line)) == [1, 2, 3]


def test_summary_and_evaluation_are_no_train_steps(tmp_path: Path) -> None:
    end = "{'train_runtime': 10.5, 'train_loss': 0.1, 'epoch': 1.0}"
    lines = [str(logged(1, 0.4)), "{'eval_reward': 0.5, 'epoch': 0.5}", str(logged(2, 0.8)), end]
    table = console(tmp_path, *lines)
    assert (steps(table), steps(table, "eval_reward"), steps(table, "train_loss")) == ([1, 2], [1], [2])


def test_printed_dict_without_an_epoch_takes_no_step(tmp_path: Path) -> None:
    table = console(tmp_path, "{'lr': 0.1, 'size': 8}", str(logged(1)), str(logged(2)))
    assert steps(table) == [1, 2]


def test_dict_of_several_lines_ends_with_its_brace() -> None:
    lines = ["x - Step 7:", "{'a': '0.5',", " 'b/c': 2}", " 'd': 3,"]
    assert [(row.metric, row.step, row.value) for row in parse_console(lines)] == [
        ("a", 7, 0.5),
        ("b/c", 7, 2.0),
    ]


def test_pipelines_that_print_at_once_are_not_mixed(tmp_path: Path) -> None:
    lines = []
    for step in (1, 2):
        for pid in (100, 101):
            lines.append(f"(NemoRLFullFinetunePipeline pid={pid}) ========== Step {step}/2 ==========")
        for pid in (100, 101):
            lines.append(f"(NemoRLFullFinetunePipeline pid={pid})   • Avg Reward: {pid + step}.0")
    table = console(tmp_path, *lines)
    assert {name.partition("/")[2] for name in table.metrics} == {"train/reward"}
    assert [table.values(name) for name in sorted(table.metrics)] == [[101.0, 102.0], [102.0, 103.0]]


def test_torn_state_gives_way_to_a_whole_one(tmp_path: Path) -> None:
    for step in (5, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}/trainer_state.json").write_text(trainer_state(step))
    assert len(found(tmp_path).series("reward")) == 10
    (tmp_path / "checkpoint-10/trainer_state.json").write_text(trainer_state(10)[:-30])
    assert len(found(tmp_path).series("reward")) == 5


def test_own_state_of_a_training_counts_before_its_checkpoints(tmp_path: Path) -> None:
    """The checkpoint is of an earlier run in the same folder."""
    (tmp_path / "checkpoint-90").mkdir()
    (tmp_path / "checkpoint-90/trainer_state.json").write_text(trainer_state(90))
    (tmp_path / "trainer_state.json").write_text(trainer_state(6))
    assert steps(found(tmp_path)) == [1, 2, 3, 4, 5, 6]


def test_two_runs_of_mlflow_are_not_mixed(tmp_path: Path) -> None:
    for name, count in (("a", 3), ("b", 5)):
        file = tmp_path / "mlruns/0" / name / "metrics/reward"
        file.parent.mkdir(parents=True)
        file.write_text("".join(f"17391823{step:05d} {count} {step}\n" for step in range(count)))
    assert found(tmp_path).values("reward") == [5.0] * 5


@pytest.mark.parametrize(("name", "mark"), [("m.csv", ","), ("m.csv", ";"), ("m.tsv", "\t")])
def test_columns_may_be_separated_otherwise(name: str, mark: str, tmp_path: Path) -> None:
    lines = ("\ufeffstep,reward", "1,0.25", "2,0.5")
    (tmp_path / name).write_text("".join(line.replace(",", mark) + "\r\n" for line in lines))
    assert [(row.step, row.value) for row in found(tmp_path)] == [(1, 0.25), (2, 0.5)]


def test_table_of_data_is_no_metric(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("question,reward\nwhy,1\n")
    assert found(tmp_path) == Table()


def test_series_of_tensorboards_page_has_its_tag_as_name(tmp_path: Path) -> None:
    (tmp_path / "run-x-tag-train_reward.csv").write_text("Wall time,Step,Value\n1.5,10,0.25\n")
    assert [(r.metric, r.step, r.value) for r in found(tmp_path)] == [
        ("Wall time", 10, 1.5),
        ("train_reward", 10, 0.25),
    ]


@pytest.mark.parametrize(
    ("asked", "logged_names", "name"),
    [
        ("reward", ["train/reward"], "train/reward"),
        ("eval_reward", ["eval/reward"], "eval/reward"),
        ("reward", ["rewards/mean", "reward"], "reward"),
        ("reward", ["critic/score/mean", "critic/rewards/mean"], "critic/rewards/mean"),
        ("kl", ["actor/kl_loss"], "actor/kl_loss"),
        ("kl", ["actor/ppo_kl", "klx"], ""),
        ("mine", ["reward"], ""),
    ],
)
def test_asked_metric_is_known_by_its_other_names(asked: str, logged_names: list[str], name: str) -> None:
    assert logged_name(asked, logged_names) == name


@pytest.mark.parametrize(
    ("name", "own", "kept"),
    [
        ("train/reward", ["train/reward"], {"train/reward", "reward"}),
        ("reward", ["train/reward"], {"train/reward", "reward"}),
        ("train/reward", [], {"reward"}),
    ],
)
def test_metric_asked_by_another_name_keeps_the_framework_s_own(
    name: str, own: list[str], kept: set[str]
) -> None:
    rows = tuple(Row(name, step, 0.5, None, "metrics.json", 0) for step in (1, 2))
    table = as_asked(Table(rows), own, ["reward"])
    assert set(table.metrics) == kept
    assert set(table.as_logged().metrics) == {name}


def rows_of(folder: Path, values: dict[int, float]) -> None:
    folder.mkdir()
    lines = (json.dumps({"step": step, "reward": value}) for step, value in values.items())
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize(
    ("first", "second", "warned"),
    [
        ({s: s / 9 for s in range(20)}, {s: s / 5 for s in range(15)}, True),
        ({s: s / 9 for s in range(20)}, {s: round(s / 9, 4) for s in range(20)}, False),
        ({s: s / 9 for s in range(20)}, {s: s / 5 for s in range(15, 40)}, False),
    ],
    ids=["two runs", "one run twice", "a resume"],
)
def test_files_of_two_runs_are_told_apart(
    first: dict[int, float], second: dict[int, float], warned: bool, tmp_path: Path
) -> None:
    rows_of(tmp_path / "a", first)
    rows_of(tmp_path / "b", second)
    whats = [finding.what for finding in found(tmp_path).findings]
    named = "`a/metrics.jsonl` and `b/metrics.jsonl` hold other values of `reward` for the same steps"
    assert whats == ([named] if warned else [])


def test_rewards_of_single_samples_are_no_curve(tmp_path: Path) -> None:
    rows_of(tmp_path / "a", {step: step / 9 for step in range(9)})
    samples = (json.dumps({"step": step, "reward": 7.0, "text": "x"}) for step in range(9) for _ in range(8))
    (tmp_path / "samples.jsonl").write_text("".join(f"{line}\n" for line in samples))
    assert found(tmp_path).values("reward") == [step / 9 for step in range(9)]


def test_states_of_two_trainings_are_not_mixed(tmp_path: Path) -> None:
    for name, last in (("a", 4), ("b", 9)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trainer_state.json").write_text(trainer_state(last))
    assert {row.source for row in found(tmp_path).series("reward")} == {"b/trainer_state.json"}


@pytest.mark.parametrize("cut", [0, 3, 7, 11, 100, 32_760, 32_775, 40_000])
def test_torn_file_of_wandb_gives_what_is_whole(cut: int, tmp_path: Path) -> None:
    data = wandb_bytes(600)
    (tmp_path / "run-x.wandb").write_bytes(data[:cut])
    steps_before = steps(found(tmp_path), "train/reward")
    assert steps_before == list(range(1, len(steps_before) + 1)) and len(steps_before) < 600
    (tmp_path / "run-x.wandb").write_bytes(data)
    assert len(found(tmp_path).series("train/reward")) == 600


NAMES = [
    "trainer_state.json", "wandb-summary.json", "a.csv", "mlruns/0/r/metrics/loss", "run-x.wandb", "a.log",
    "checkpoint-7/trainer_state.json", "m.jsonl",
]  # fmt: skip
PIECES = st.sampled_from(
    [b"step", b"{'loss': 1, 'epoch': ", b'{"log_history": [', b"nan", b",", b"\n", b"\r", b":W&B\0\0\0",
     b"Step 3:\n", b"1e999", b" 50%|#| 3/4 [", b"}", b"1739182300000 0.5 3", b"\0\0\0\0\x05\0\x01",
     b"\xff", b'{"a":' * 50]
)  # fmt: skip


@given(st.sampled_from(NAMES), st.lists(st.one_of(PIECES, st.binary(max_size=9)), max_size=30))
def test_any_bytes_under_any_name_are_read_without_an_error(name: str, pieces: list[bytes]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(pieces))
        found(Path(folder))


LOSSES = [2.0 - 0.013 * at + 0.05 * (at % 3) for at in range(20)]


def beside_a_state(tmp_path: Path, values: list[float], epochs: list[float]) -> Table:
    """A log without steps and bars, beside a trainer's state of the steps 5, 10, ... 60."""
    records = (str({"loss": round(value, 4), "epoch": at}) for value, at in zip(values, epochs, strict=True))
    (tmp_path / "train.log").write_text("".join(f"{line}\n" for line in records))
    history = [{"step": 5 * at, "loss": value} for at, value in enumerate(LOSSES[:12], 1)]
    state = {"global_step": 60, "max_steps": 400, "log_history": history}
    (tmp_path / "checkpoint-60").mkdir()
    (tmp_path / "checkpoint-60" / "trainer_state.json").write_text(json.dumps(state))
    return found(tmp_path)


def test_log_without_steps_has_those_of_the_state_with_its_values(tmp_path: Path) -> None:
    table = beside_a_state(tmp_path, LOSSES, [0.01 * at for at in range(20)])
    assert [row.step for row in table.series("loss")] == [*range(5, 101, 5)]


@pytest.mark.parametrize(
    ("values", "epochs"),
    [
        ([value + 0.3 for value in LOSSES], [0.01 * at for at in range(20)]),  # another run's
        (LOSSES, [0.01 * (at if at < 15 else at - 4) for at in range(20)]),  # resumed behind its 15th record
    ],
)
def test_log_of_another_run_or_of_two_processes_has_no_steps_of_the_state(
    values: list[float], epochs: list[float], tmp_path: Path
) -> None:
    table = beside_a_state(tmp_path, values, epochs)
    assert max(row.step or 0 for row in table.series("loss")) < 100
