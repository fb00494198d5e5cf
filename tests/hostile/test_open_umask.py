"""`umask 000`: nothing of a run is wider than 0755 and 0644; a run folder that others may write is told."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from jobspec.runtime.base.umask import keep_others_out
from tests.kits.project_kit import Project


def test_run_below_an_open_umask(project: Project) -> None:
    argv = [sys.executable, "-m", "jobspec.cli", "run", "hello.yaml"]
    subprocess.run(argv, cwd=project.root, umask=0, capture_output=True, check=True)
    made = [path for path in (project.root / "runs").rglob("*") if not path.is_symlink()]
    assert any(path.name == "report.html" for path in made)
    assert [path for path in made if path.stat().st_mode & 0o022] == []
    assert "evidence.writable" not in project.cli("report", "last").text


def test_folder_that_others_may_write_is_told(project: Project) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    run = project.last()
    run.root.chmod(0o777)
    (run.attempt(1) / "results.json").chmod(0o666)
    told = project.cli("report", run.run_id)
    assert told.code == 0
    assert "warning[evidence.writable]" in told.out
    assert "others may write the run folder, `attempts/1/results.json`" in told.out


@pytest.mark.parametrize(("before", "after"), [(0, 0o022), (0o020, 0o022), (0o002, 0o002), (0o077, 0o077)])
def test_a_umask_that_shares_with_a_group_stays(before: int, after: int) -> None:
    at_start = os.umask(before)
    try:
        keep_others_out()
    finally:
        found = os.umask(at_start)
    assert found == after
