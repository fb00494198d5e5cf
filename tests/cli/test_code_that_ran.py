"""From render to report: a checkout that is edited between submission and start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kits.checkout_kit import write_checkout
from tests.kits.project_kit import Project

SPEC = """\
version: 1
name: drift
framework: command
launch: {mode: srun}
repos: [{name: code, path: ./code}]
train: {command: [python3, -c, "import mod; print('x is', mod.x)"]}
"""


@pytest.fixture
def drift(project: Project, tmp_path: Path) -> Project:
    write_checkout(tmp_path / "code", {"mod.py": "x = 1\n"})
    (tmp_path / "drift.yaml").write_text(SPEC)
    return project


def test_edit_between_render_and_start_is_blocked(drift: Project, tmp_path: Path) -> None:
    drift.cli("render", "drift.yaml", "--out", "r")
    (tmp_path / "code/mod.py").write_text("x = 2\n")
    done = drift.cli("submit", "r", "--watch")
    assert done.code == 3, done.text
    summary = drift.cli("report", "r", "--format", "summary").out
    assert summary.startswith("Result: Blocked - `code` changed after submission: 1 file (mod.py)")
    assert "plus uncommitted mod.py (changed: mod.py)" in summary
    assert "x is" not in "".join(path.read_text() for path in (tmp_path / "r/attempts").rglob("*.log"))


def test_recorded_edit_runs_and_reproduce_says_what_the_lock_lacks(drift: Project, tmp_path: Path) -> None:
    drift.cli("render", "drift.yaml", "--out", "r", "--set", "repos.0.changed=record")
    (tmp_path / "code/mod.py").write_text("x = 2\n")
    done = drift.cli("submit", "r", "--watch")
    assert done.code == 0, done.text
    assert "; ran " in drift.cli("report", "r", "--format", "summary").out
    (tmp_path / "code/mod.py").write_text("x = 1\n")
    checked = drift.cli("reproduce", "r/spec.lock.yaml", "--check")
    assert checked.code == 1
    assert "`code` was not as the lock says when the run started: mod.py" in checked.text
    assert "and apply r/attempts/1/patches/code.diff" in checked.text


def test_dirty_checkout_that_stays_as_it_was_passes(drift: Project, tmp_path: Path) -> None:
    (tmp_path / "code/mod.py").write_text("x = 5\n")
    done = drift.cli("run", "drift.yaml")
    assert done.code == 0, done.text
    assert "plus uncommitted mod.py, unchanged when it started" in drift.cli(
        "report", "last", "--format", "summary"
    ).out  # fmt: skip
    assert drift.cli("reproduce", "last", "--check").code == 0


def test_wrong_value_of_the_key_has_its_suggestion(drift: Project) -> None:
    done = drift.cli("validate", "drift.yaml", "--set", "repos.0.changed=recrod")
    assert done.code == 2
    assert "repos[0].changed" in done.text and "write `record`" in done.text


def test_frozen_checkout_runs_as_it_was_submitted(drift: Project, tmp_path: Path) -> None:
    drift.cli("render", "drift.yaml", "--out", "r", "--set", "repos.0.freeze=true")
    (tmp_path / "code/mod.py").write_text("x = 2\n")
    done = drift.cli("submit", "r", "--watch")
    assert done.code == 0, done.text
    logs = "".join(path.read_text() for path in (tmp_path / "r/attempts").rglob("*.log"))
    assert "x is 1" in logs and "x is 2" not in logs
    assert "unchanged when it started" in drift.cli("report", "r", "--format", "summary").out
    assert f"path: {tmp_path}/code\n" in (tmp_path / "r/spec.lock.yaml").read_text()


def test_points_of_a_sweep_share_one_frozen_copy(drift: Project, tmp_path: Path) -> None:
    spec = SPEC.replace("./code}", "./code, freeze: true}") + "sweep: {grid: {train.seed: [1, 2, 3]}}\n"
    (tmp_path / "sweep.yaml").write_text(spec)
    assert drift.cli("validate", "sweep.yaml").code == 0
    assert list(tmp_path.rglob(".frozen")) == [], "validate writes nothing"
    done = drift.cli("render", "sweep.yaml", "--out", "s")
    assert done.code == 0, done.text
    (folder,) = tmp_path.rglob(".frozen")
    (copy,) = [path for path in folder.iterdir() if path.is_dir()]
    plans = [(tmp_path / f"s/points/{index}/plan.json").read_text() for index in range(3)]
    assert all(str(copy) in plan for plan in plans)
    assert (folder / f"{copy.name}.users").read_text() == f"{tmp_path}/s\n"


def test_folder_without_git_cannot_be_frozen(drift: Project, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    words = ("--set", "repos.0.freeze=true", "--set", "repos.0.path=./plain", "--out", "r")
    done = drift.cli("render", "drift.yaml", *words)
    assert done.code == 2
    assert "`code` cannot be frozen" in done.text and "not a git repository" in done.text
