"""What SkyRL's trainer prints of each step, wherever it logs to."""

from __future__ import annotations

from pathlib import Path

from jobspec.metrics.console import read_console

HEAD = "2025-08-19 03:13:06.298 | INFO     | skyrl_train.trainer:compute_advantages_and_returns:612 - "
LINE = HEAD + "avg_final_rewards: {}, avg_response_length: 255.7287\n"


def rewards(path: Path, text: str) -> list[tuple[int | None, float]]:
    path.write_text(text)
    return [(row.step, row.value) for row in read_console(path).series("loss/avg_final_rewards")]


def test_rewards_of_each_step(tmp_path: Path) -> None:
    text = "".join(LINE.format(value) for value in (0.25, 0.5))
    assert rewards(tmp_path / "train.log", text) == [(1, 0.25), (2, 0.5)]


def test_resumed_run_goes_on_at_its_step(tmp_path: Path) -> None:
    text = "x | INFO | trainer:load:9 - Resuming from global_step: 40\n" + LINE.format(0.5)
    assert rewards(tmp_path / "train.log", text) == [(41, 0.5)]


def test_older_words_and_a_step_that_samples_twice(tmp_path: Path) -> None:
    sampled = HEAD + "reward/avg_pass_at_5: 0.6, reward/avg_raw_reward: {}\n"
    older = HEAD + "avg_raw_rewards: {}, avg_response_length: 243.1\n"
    text = sampled.format(0.1) + sampled.format(0.2) + older.format(0.2)
    text += sampled.format(0.4) + older.format(0.4)
    log = tmp_path / "train.log"
    log.write_text(text)
    table = read_console(log)
    for name in ("reward/avg_raw_reward", "loss/avg_raw_rewards"):
        assert [(row.step, row.value) for row in table.series(name)] == [(1, 0.2), (2, 0.4)]
    assert table.series("reward/avg_pass_at_5")[-1].step == 2
