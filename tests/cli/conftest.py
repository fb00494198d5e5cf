"""Fixtures of the command line's tests."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobspec import launchers
from jobspec.finding import JobspecError
from jobspec.runs.records import read_launch
from tests.kits.project_kit import Project
from tests.kits.slurm_kit import SITE, SPEC, Controller


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Background jobs of a shell inherit an ignored SIGINT, and so would every child of the tests."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Project]:
    """A project folder as the current one; what still runs in it at the end is cancelled."""
    for name in [name for name in os.environ if name.startswith(("JOBSPEC_", "SLURM_", "SBATCH_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ".state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    monkeypatch.chdir(tmp_path)
    made = Project(tmp_path, capsys)
    yield made
    for run in made.runs.list():
        with contextlib.suppress(JobspecError):  # a test damaged its record on purpose
            launch = read_launch(run)
            if launch is not None and launch.launcher == "local":
                launchers.cancel(launch)


@pytest.fixture
def slurm(project: Project, monkeypatch: pytest.MonkeyPatch) -> Controller:
    """A controller for `site.yaml`; the job of `away.yaml` is for it."""
    controller = Controller(project.root / "slurm")
    monkeypatch.setenv("PATH", f"{controller.programs}:{os.environ['PATH']}")
    project.write("site.yaml", SITE.format(runs=project.root / "runs"))
    project.write("away.yaml", SPEC)
    return controller
