"""Lines that a program prints in a form of its own, and bars with values behind their time."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.metrics import read_console
from jobspec.metrics.found import read_found
from jobspec.metrics.plain_lines import parse_plain, read_bars

PRIME = (
    "10:01:12 SUCCESS Step 12 | Time: 20.11s | Reward: 0.3312 | Throughput: 4120.1 tokens/s | Async Level: 1"
)
MEGATRON = (
    " [2025-10-02 10:00:01] iteration       12/     100 | consumed samples:          256 | "
    "elapsed time per iteration (ms): 1234.5 | lm loss: 1.234E+01 | number of nan iterations:   0 |"
)


@pytest.mark.parametrize(
    ("line", "step", "name", "value"),
    [
        (PRIME, 12, "reward", 0.3312),
        (MEGATRON, 12, "lm_loss", 12.34),
        ("INFO:root:step: 3, loss: 0.01, mean_reward: 0.2", 3, "mean_reward", 0.2),
        ("step=3 loss=0.5 reward=0.2 kl=0.01", 3, "reward", 0.2),
        ("[2025-10-02 10:00:01] step 3/200 | loss -0.0123 | reward 0.2", 3, "loss", -0.0123),
        ("2025-10-02 10:00:01,123 - INFO - Step 12 - Reward: 0.31 - Loss: 0.1", 12, "reward", 0.31),
        ("Step 5 | reward=0.31±0.02 | loss=0.1", 5, "reward", 0.31),
        ("iter 12: loss 1.234, time 12.3ms, mfu 3%", 12, "loss", 1.234),
        ("step 10: reward 0.135 loss 0.480 lr 1e-6", 10, "loss", 0.48),
    ],
)
def test_pairs_behind_a_step_are_metrics(line: str, step: int, name: str, value: float) -> None:
    found = parse_plain(line)
    assert found is not None
    assert (found.step, dict(found.values)[name]) == (step, value)


@pytest.mark.parametrize(
    "line",
    [
        "saved checkpoint at step 12 because reward 0.3 improved",
        "step 5: loss is nan, skipping",
        "At step 10 the reward was 0.3",
        "eval step 12 | reward 0.3",
        "Micro Step 3/8 | Loss: 0.1 | Entropy: 0.2",
        "step 100 | sample 7 | answer right",
        "stepwise reward 0.5",
    ],
)
def test_sentences_and_other_steps_are_none(line: str) -> None:
    assert parse_plain(line) is None


def test_steps_that_begin_anew_in_each_epoch_go_on(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    lines = (
        f"Epoch {epoch}/2, Step {step}/3, Loss: 0.{epoch}{step}\n" for epoch in (1, 2) for step in (1, 2, 3)
    )
    log.write_text("".join(lines))
    assert [row.step for row in read_console(log, plain=True).series("loss")] == [1, 2, 3, 4, 5, 6]
    assert not len(read_console(log))


def test_plain_lines_count_only_where_nothing_else_has_steps(tmp_path: Path) -> None:
    log, metrics = tmp_path / "train.log", tmp_path / "metrics.jsonl"
    log.write_text("".join(f"step {step} | loss 0.5\n" for step in range(1, 9)))
    assert len(read_found(tmp_path, [(log, "train.log")], tmp_path).series("loss")) == 8
    metrics.write_text('{"step": 1, "reward": 0.1}\n{"step": 2, "reward": 0.2}\n')
    assert read_found(tmp_path, [(log, "train.log")], tmp_path).metrics == ("reward",)


def bars(*counts: int) -> str:
    return "\r".join(f"GRPO: 3%|# | {n}/9 [00:10<01:30,  1.02s/it, loss=0.5, reward=0.{n}]" for n in counts)


def test_values_behind_a_bar(tmp_path: Path) -> None:
    log = tmp_path / "train.err"
    log.write_text(bars(1, 2, 3) + "\n")
    table = read_bars(log, "train.err")
    assert [(row.step, row.value) for row in table.series("reward")] == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert table.planned == 9


def test_bars_that_begin_anew_count_no_train_steps(tmp_path: Path) -> None:
    log = tmp_path / "train.err"
    log.write_text(bars(1, 2, 3) + "\n" + bars(1, 2) + "\n")
    assert not len(read_bars(log, "train.err"))
