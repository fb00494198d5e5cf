"""Ctrl-C between the start of a run on this machine and the first look at it."""

from __future__ import annotations

import pytest

from jobspec.cli.commands import run
from jobspec.launchers import JobState
from jobspec.launchers.local import LocalLauncher
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch
from tests.kits.project_kit import Project

SLEEPER = "version: 1\nname: s\nframework: command\nlaunch: {mode: srun}\ntrain: {command: [sleep, '300']}\n"


def test_run_that_nobody_follows_yet_is_cancelled(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Launch] = []

    def interrupted(_run: RunPaths, launch: Launch) -> str:
        started.append(launch)
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "announcement", interrupted)
    project.write("sleeper.yaml", SLEEPER)
    assert project.cli("run", "sleeper.yaml").code == 130
    assert [LocalLauncher().query([launch])[launch].state for launch in started] == [JobState.CANCELLED]
