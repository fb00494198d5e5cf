"""When a held run counts as idle, by what its batch script saw."""

from __future__ import annotations

from pathlib import Path

from jobspec.runtime.head.held import GAP_S, Idle


def looks(tmp_path: Path, *seen: tuple[float, str]) -> list[bool]:
    file = tmp_path / "steps"
    idle = Idle(file, 60, 0.0)
    ends = []
    for now, text in seen:
        file.write_text(text)
        ends.append(idle.over(now))
    return ends


def test_only_its_own_step_for_that_long_is_idle(tmp_path: Path) -> None:
    assert looks(tmp_path, (30, "1 1\n"), (59, "2 1\n"), (61, "3 1\n")) == [False, False, True]


def test_another_step_begins_the_time_anew(tmp_path: Path) -> None:
    assert looks(tmp_path, (50, "1 2\n"), (100, "2 1\n"), (111, "3 1\n")) == [False, False, True]


def test_what_nobody_has_seen_ends_nothing(tmp_path: Path) -> None:
    assert looks(tmp_path, (30, "1 1\n"), (100, "1 1\n")) == [False, False]  # the script is gone
    assert looks(tmp_path, (100, ""), (101, "x"), (102, "1 0\n")) == [False, False, False]
    late = 10 + GAP_S + 1
    assert looks(tmp_path, (10, "1 1\n"), (late, "2 1\n"), (late + 61, "3 1\n")) == [False, False, True]


def test_without_a_look_it_is_not_idle(tmp_path: Path) -> None:
    assert not Idle(tmp_path / "none", 1, 0.0).over(100.0)
