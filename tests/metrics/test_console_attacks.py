"""Real console logs, cut, mixed, coloured and grown: the same values come out, and never a wrong one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.metrics import Row, Table, parse_console, read_console
from jobspec.metrics.console import ConsoleReader
from jobspec.metrics.table import prefer

FIXTURES = Path(__file__).parents[1] / "fixtures"
TRL = b"".join(
    b"{'loss': %.4f, 'grad_norm': '0.5', 'reward': np.float64(0.%d), 'kl': nan}\n" % (1 / n, n)
    for n in range(1, 9)
)
LOGS = {
    "verl": (FIXTURES / "verl_log_example.txt").read_bytes(),
    "older verl": (FIXTURES / "verl_log_example_legacy.txt").read_bytes(),
    "NeMo-RL": (FIXTURES / "nemo_rl_log_example.txt").read_bytes().split(b"### SECTION B")[0],
    "TRL": TRL,
}
Value = tuple[str, int | None, str]


def values(rows: Iterator[Row] | list[Row]) -> list[Value]:
    return [(row.metric, row.step, repr(row.value)) for row in rows]


def read(data: bytes, *cuts: int) -> list[Value]:
    reader, found = ConsoleReader(), list[Row]()
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        found.extend(reader.feed(data[start:end]))
    return values([*found, *reader.close()])


@pytest.mark.parametrize("name", LOGS)
@given(cuts=st.lists(st.integers(0, 10**6), max_size=8))
def test_pieces_of_a_growing_log_give_the_whole(name: str, cuts: list[int]) -> None:
    assert read(LOGS[name], *cuts) == read(LOGS[name]) != []


@pytest.mark.parametrize("name", LOGS)
@given(end=st.integers(0, 10**6))
def test_cut_log_gives_a_beginning_of_its_values(name: str, end: int) -> None:
    data = LOGS[name][: end % (len(LOGS[name]) + 1)]
    found = read(data)
    assert found == read(LOGS[name])[: len(found)]


def ray(line: bytes) -> bytes:
    return b"\x1b[36m(MegatronPolicyWorker[rank=0] pid=7, ip=10.0.0.2)\x1b[0m " + line


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "CRLF": lambda line: line + b"\r",
    "Ray": ray,
    "label": lambda line: b"3: " + line,
    "rank": lambda line: b"[rank3]: " + line,
    "time": lambda line: b"2026-08-22T10:44:12.113Z " + line,
    "bar": lambda line: b" 40%|####   | 2/5 [00:30<00:14]\r" + line,
    "repeated": lambda line: line + b" [repeated 7x across cluster]",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("name", ["verl", "TRL"])
def test_what_launchers_put_around_a_line_does_not_matter(
    name: str, change: Callable[[bytes], bytes]
) -> None:
    changed = b"\n".join(change(line) for line in LOGS[name].split(b"\n")) + b"\n"
    assert read(changed) == read(LOGS[name])


@pytest.mark.parametrize("name", LOGS)
def test_byte_order_mark_and_foreign_bytes_do_not_matter(name: str) -> None:
    mixed = b"\xef\xbb\xbf" + LOGS[name].replace(b"\n", b"\n\xff\xe2\x80 torn\n")
    assert read(mixed) == read(LOGS[name])


@pytest.mark.parametrize("name", ["verl", "TRL"])
def test_lines_of_other_workers_in_between_do_not_matter(name: str) -> None:
    other = b"\n(RolloutWorker pid=9) INFO 08-22 10:00:00 [x.py:1] step took: 3 - and more\n"
    assert read(LOGS[name].replace(b"\n", other)) == read(LOGS[name])


def test_line_behind_another_workers_unfinished_one_is_read() -> None:
    line = "(W pid=1) loading (TaskRunner pid=2, ip=10.0.0.1) step:3 - actor/loss:0.5\n"
    assert [(row.step, row.value) for row in parse_console([line])] == [(3, 0.5)]


def test_number_that_is_cut_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("step:3 - actor/pg_loss:0.5 - actor/kl:0.12")  # of 0.125
    assert read_console(path).metrics == ("actor/pg_loss",)


def test_other_text_mixed_into_a_value_is_no_value() -> None:
    (row,) = parse_console(["step:3 - a:0.5(WorkerDict pid=7) INFO x - b:2.0\n"])
    assert (row.metric, row.value) == ("b", 2.0)


def nemo(epoch: int, *headers: int, data: int | None = None) -> str:
    lines = [f"===== Epoch {epoch}/3 ====="]
    for header in headers:
        lines.append(f"===== Step {header}/2 =====")
        if data is not None:
            lines.append(f"Logged data to /logs/train_data_step{data + header}.jsonl")
        lines.append(f"  • Loss: 0.{epoch}{header}")
    return "\n".join(lines) + "\n"


def nemo_steps(text: str) -> list[int | None]:
    return [row.step for row in parse_console(text.splitlines(keepends=True))]


def test_nemo_rl_counts_steps_over_epochs() -> None:
    assert nemo_steps(nemo(1, 1, 2) + nemo(2, 1, 2) + nemo(3, 1)) == [1, 2, 3, 4, 5]


def test_nemo_rl_data_file_names_the_step_of_a_resumed_run() -> None:
    assert nemo_steps(nemo(2, 1, 2, data=10)) == [11, 12]


def test_nemo_rl_data_file_of_an_early_release_counts_from_zero() -> None:
    assert nemo_steps(nemo(1, 1, 2, data=-1)) == [1, 2]


def test_second_attempt_in_one_log_starts_anew() -> None:
    assert nemo_steps(nemo(1, 1, 2) + nemo(1, 1, 2)) == [1, 2, 1, 2]
    table = Table(tuple(parse_console((nemo(1, 1, 2) + nemo(1, 1)).splitlines(keepends=True))))
    assert [row.line for row in table.series("train/loss")] == [8, 5]


@pytest.mark.parametrize("digits", ["9" * 30, "9" * 5000])
def test_step_beyond_all_measure_is_no_step(digits: str) -> None:
    lines = [f"step:{digits} - a:1\n", f"=== Step {digits}/3 ===\n", f"{{'loss': 1, 'step': {digits}}}\n"]
    assert all(row.step is None or row.step < 10**40 for row in parse_console(lines))


def test_infinite_and_missing_numbers_keep_their_meaning() -> None:
    line = "step:1 - a:nan - b:-inf - c:np.float64(inf) - d:None - e:True - f:np.int32(2)\n"
    found = {row.metric: row.value for row in parse_console([line])}
    assert math.isnan(found["a"]) and found["b"] == -math.inf and found["c"] == math.inf
    assert math.isnan(found["d"]) and "e" not in found and found["f"] == 2


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    read(data)


def test_source_that_comes_first_wins_a_step_and_later_ones_fill_gaps() -> None:
    first = Table((Row("a", 1, 1.0, source="x"), Row("a", 1, 1.5, source="x")))
    second = Table((Row("a", 1, 9.0, source="y"), Row("a", 2, 2.0, source="y")))
    both = prefer(first, second)
    assert [(row.step, row.value, row.source) for row in both] == [
        (1, 1.0, "x"),
        (1, 1.5, "x"),
        (2, 2.0, "y"),
    ]
    assert both.values("a") == [1.5, 2.0]
