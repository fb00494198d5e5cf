"""Run folders of other users: read as data, never executed, and no process is signalled on their word."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from jobspec import launchers
from jobspec.launchers.base import JobState
from jobspec.launchers.local import boot_id, process_start
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch, read_launch
from tests.kits.project_kit import Project

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of another user")


def all_of_nobody(root: Path) -> None:
    for path in (root, *root.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def script_of_nobody(root: Path) -> None:
    os.chown(root / "attach.sh", NOBODY, NOBODY)


def script_behind_a_link(root: Path) -> None:
    (root.parent / "theirs").write_text("echo x\n")
    os.chown(root.parent / "theirs", NOBODY, NOBODY)
    (root / "attach.sh").unlink()
    (root / "attach.sh").symlink_to("../theirs")


def script_for_all(root: Path) -> None:
    (root / "attach.sh").chmod(0o666)


def folder_for_all(root: Path) -> None:
    root.chmod(0o777)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(all_of_nobody, marks=as_root),
        pytest.param(script_of_nobody, marks=as_root),
        pytest.param(script_behind_a_link, marks=as_root),
        script_for_all,
        folder_for_all,
    ],
)
def test_what_others_own_or_may_write_is_not_executed(
    change: Callable[[Path], None], project: Project
) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    root = project.last().root
    change(root)
    for command in (["exec", root, "--", "true"], ["attach", root], ["submit", root], ["cancel", root]):
        done = project.cli(*command)
        assert (done.code, "error[run.not-yours]" in done.err) == (2, True), command
    assert project.cli("status", root).code == 0
    assert "PASS" in project.cli("report", root).out


@as_root
def test_point_of_a_sweep_that_another_user_owns_is_not_executed(project: Project) -> None:
    text = (project.root / "hello.yaml").read_text()
    project.write("sweep.yaml", text + "sweep: {mode: one_allocation, grid: {user.size: [1, 2]}}\n")
    assert project.cli("render", "sweep.yaml", "--out", "out").code == 0
    os.chown("out/points/1", NOBODY, NOBODY)
    assert "error[run.not-yours]" in project.cli("submit", "out").err


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "300"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_record_that_names_another_process_ends_nothing(
    project: Project, bystander: subprocess.Popen[bytes]
) -> None:
    """The pid, its start and this boot are right, as whoever may write the record can make them."""
    assert project.cli("run", "hello.yaml").code == 0
    run = project.last()
    run.scheduler.unlink()
    record = json.loads(run.state.read_text())
    record |= {"job_id": str(bystander.pid), "process_start": process_start(bystander.pid)}
    assert record["boot_id"] == boot_id()
    run.state.write_text(json.dumps(record))
    assert "already COMPLETED" in project.cli("cancel", run.root).out
    assert bystander.poll() is None


def test_record_that_names_another_run_ends_nothing(project: Project) -> None:
    project.write(
        "sleep.yaml", (project.root / "hello.yaml").read_text().replace("echo done", "sleep 300; echo done")
    )
    assert project.cli("run", "hello.yaml").code == 0
    ended = project.last()
    assert project.cli("submit", "sleep.yaml").code == 0
    running = project.last()
    ended.scheduler.unlink()
    ended.state.write_text(running.state.read_text())
    project.cli("cancel", ended.root)
    launch = read_launch(running)
    assert launch is not None and launchers.query([launch])[launch].state is JobState.RUNNING


@as_root
def test_remote_host_that_a_strangers_record_names_is_not_asked(project: Project, tmp_path: Path) -> None:
    assert project.cli("render", "hello.yaml", "--out", "out").code == 0
    run = RunPaths(tmp_path / "out")
    launch = Launch("x", "/x", "c", "slurm", "j", 1.0, job_id="1", login="login.invalid")
    run.state.write_text(json.dumps(asdict(launch)))
    all_of_nobody(run.root)
    done = project.cli("status", "out")
    assert (done.code, "a remote run of nobody" in done.out) == (0, True)
    done = project.cli("logs", "out")
    assert "login.invalid" not in done.out + done.err
