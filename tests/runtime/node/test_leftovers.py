"""Folders that a run made beside others' are removed at its end, and nothing else."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from jobspec.plan import CollectPlan, MadePlan
from jobspec.runtime.node import leftovers
from tests.kits.agent_lab import running, shell


@pytest.fixture
def below(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    for name in ("ft_1", "ft_2", "other"):
        (folder / name / "cache").mkdir(parents=True)
    return folder


def remove(below: Path, note: str) -> list[str]:
    (below.parent / "note").write_text(note)
    return leftovers.remove([MadePlan(str(below), "note")], below.parent)


def left(below: Path) -> list[str]:
    return sorted(path.name for path in below.iterdir())


def test_only_what_is_noted_goes(below: Path) -> None:
    assert remove(below, "ft_1\nft_2\nft_1\nabsent\n") == []
    assert left(below) == ["other"]


def test_the_last_one_takes_the_empty_folder_with_it(below: Path) -> None:
    remove(below, "ft_1\nft_2\nother\n")
    assert not below.exists()


@pytest.mark.parametrize("name", ["..", ".", "../shared", "other/cache", "/tmp", "", " "])
def test_name_that_leads_elsewhere_is_left(below: Path, name: str) -> None:
    remove(below, f"{name}\n")
    assert left(below) == ["ft_1", "ft_2", "other"]
    assert (below / "other/cache").is_dir()


def test_link_and_file_are_left(below: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (below / "link").symlink_to(tmp_path / "precious")
    (below / "file").touch()
    remove(below, "link\nfile\n")
    assert {"link", "file"} <= set(left(below)) and (tmp_path / "precious").is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder to another user needs root")
def test_folder_of_another_user_is_left(below: Path) -> None:
    os.chown(below / "ft_1", 12345, 12345)
    remove(below, "ft_1\n")
    assert "ft_1" in left(below)


def test_run_that_noted_nothing_removes_nothing(below: Path, tmp_path: Path) -> None:
    assert leftovers.remove([MadePlan(str(below), "absent")], tmp_path) == []
    assert left(below) == ["ft_1", "ft_2", "other"]


@pytest.mark.parametrize("how", ["well", "failed", "cancelled"])
def test_however_a_run_ends_its_folder_goes_after_collection(tmp_path: Path, how: str) -> None:
    below = tmp_path / "shared"
    (below / "other").mkdir(parents=True)
    make = f"mkdir {below}/ft_1; echo x > {below}/ft_1/vllm.log; echo ft_1 > $JOBSPEC_ATTEMPT_DIR/made"
    then = {"well": "exit 0", "failed": "exit 7", "cancelled": "echo up > $JOBSPEC_ATTEMPT_DIR/up; sleep 300"}
    collect = CollectPlan((f"{below}/ft_1/*.log",))
    plan = {"made": (MadePlan(str(below), "made"),), "collect": collect}
    with running(tmp_path, shell(f"{make}; {then[how]}"), **plan) as run:
        process = run.agent()
        if how == "cancelled":
            run.wait_file(run.attempt / "up")
            process.send_signal(signal.SIGTERM)
        code, output = run.finish()
        assert code == {"well": 0, "failed": 7, "cancelled": 143}[how], output
        assert [path.name for path in run.root.rglob("vllm.log")] == ["vllm.log"]
    assert left(below) == ["other"]
