"""A rendered folder that was moved or copied: its scripts name the place that it was rendered for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.kits.project_kit import Project

SWEEP = """\
version: 1
name: s
framework: command
launch: {mode: srun}
train: {command: ['true']}
sweep: {mode: one_allocation, grid: {user.size: [1]}}
"""


@pytest.mark.parametrize("spec", ["hello.yaml", "sweep.yaml"])
def test_copy_of_a_rendered_folder_is_refused(project: Project, spec: str) -> None:
    project.write("sweep.yaml", SWEEP)
    assert project.cli("render", spec, "--out", "it's").code == 0
    shutil.copytree("it's", "copy")
    done = project.cli("submit", "copy")
    assert done.code == 2
    assert "error[launch.moved]" in done.err
    assert not Path("copy/launch.json").exists()


def test_folder_may_be_named_by_another_path(project: Project) -> None:
    assert project.cli("render", "hello.yaml", "--out", "out").code == 0
    Path("link").symlink_to("out")
    assert project.cli("submit", "link", "--watch").code == 0
