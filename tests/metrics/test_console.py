"""Metrics in console logs: colours, carriage returns, Ray prefixes, wrapped numbers, cut lines."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.metrics import Table, parse_console, read_console

FIXTURES = Path(__file__).parents[1] / "fixtures"


def values(*lines: str) -> dict[str, float]:
    return {row.metric: row.value for row in parse_console(lines)}


def test_trl_dict_behind_colours_prefix_and_progress_bar() -> None:
    prefix = "\x1b[36m(RayTrainWorker pid=12, ip=10.0.0.2)\x1b[0m 3%|x| 1/9\r"
    assert values(prefix + "{'loss': '0.5', 'reward': np.float64(0.25)}\n") == {"loss": 0.5, "reward": 0.25}


def test_words_for_no_number_are_nan() -> None:
    found = values("{'loss': nan, 'kl': None, 'grad_norm': inf, 'name': 'x'}")
    assert math.isnan(found["loss"]) and math.isnan(found["kl"]) and math.isinf(found["grad_norm"])
    assert "name" not in found


def test_step_inside_the_dict_is_used() -> None:
    (row,) = parse_console(["{'loss': 0.1, 'step': 7}"])
    assert (row.step, row.metric) == (7, "loss")


def test_cut_line_gives_its_whole_values() -> None:
    assert values("{'loss': 0.1, 'reward': 0.") == {"loss": 0.1}


def test_printed_configuration_is_no_metric() -> None:
    assert values("{'actor': {'megatron': {'context_parallel_size': 1,") == {}


def test_coloured_step_opens_a_line_of_metrics() -> None:
    message = "worker says step: 4 - actor/loss:9.0"
    assert values(message, "step:\x1b[1m3\x1b[0m - actor/loss:0.5") == {"actor/loss": 0.5}


def test_verl_lines() -> None:
    table = read_console(FIXTURES / "verl_log_example.txt")
    assert table.last_step() == 2
    assert table.values("critic/rewards/mean") == [0.390625]
    assert table.series("critic/rewards/mean")[0].line == 102


def test_older_verl_lines_with_numpy_numbers() -> None:
    table = read_console(FIXTURES / "verl_log_example_legacy.txt")
    assert table.values("actor/grad_norm") == [0.091]
    assert table.values("num_turns/min") == [2.0]


def test_nemo_rl_blocks() -> None:
    table = read_console(FIXTURES / "nemo_rl_log_example.txt")
    assert table.values("train/reward") == [0.25, 0.375]
    assert table.values("timing/train/total_step_time") == [36.48, 5.99]


def test_absent_log_is_an_empty_table(tmp_path: Path) -> None:
    assert read_console(tmp_path / "no.log") == Table()


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    list(parse_console(text.splitlines(keepends=True)))


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_cut_anywhere_never_invents_a_value(cut: int) -> None:
    line = "step:3 - actor/loss:0.125 - critic/score/mean:np.float64(0.5)"
    whole = {"actor/loss": 0.125, "critic/score/mean": 0.5}
    found = values(line[:cut])
    complete = list(found.items())[:-1]
    assert set(complete) <= set(whole.items())
