"""Folders that may not be entered: told as what they are by every command, and never a bug of jobspec."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobspec import frameworks
from tests.kits.project_kit import HELLO, Done, Project

Run = Callable[..., Done]


@pytest.fixture
def outsider(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Commands of a user who may not enter `closed`, in a folder that others may enter; root is nobody."""
    folder = Path(tempfile.mkdtemp(prefix="jobspec-outsider-", dir="/tmp"))
    folder.chmod(0o755)
    (folder / "hello.yaml").write_text(HELLO)
    (folder / "closed/inner").mkdir(parents=True)
    monkeypatch.chdir(folder)
    for name in frameworks.BUILT_IN:  # a module is not found by a user who may not enter its folder
        frameworks.get(name)
    for argv in (["validate", "hello.yaml"], ["triage", "hello.yaml"], ["compare", "a", "b"], ["status"]):
        project.cli(*argv)
    project.cli("judge", ".", "--framework", "command")
    (folder / "closed").chmod(0)
    user = os.geteuid()

    def run(*argv: str) -> Done:
        if user == 0:
            os.seteuid(65534)
        try:
            return project.cli(*argv)
        finally:
            os.seteuid(user)

    yield run
    (folder / "closed").chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "argv",
    [
        ["validate", "closed/inner/x.yaml"],
        ["validate", "hello.yaml", "--cluster-file", "closed/inner/x.yaml"],
        ["validate", "hello.yaml", "--cluster", "closed/inner/x.yaml"],
        ["render", "hello.yaml", "--out", "closed/inner/out"],
        ["submit", "closed/inner"],
        ["report", "closed/inner"],
        ["compare", "closed/inner", "closed/inner"],
        ["reproduce", "closed/inner/x.yaml"],
        ["status", "--runs", "closed"],
        ["judge", "closed/inner", "--framework", "command"],
        ["triage", "closed/inner/x.log"],
        ["triage", "closed"],
        ["init", "--out", "closed/inner/x.yaml"],
    ],
    ids=" ".join,
)
def test_a_path_that_may_not_be_entered(outsider: Run, argv: list[str]) -> None:
    done = outsider(*argv)
    assert done.code == 2, done.text
    assert "jobspec.bug" not in done.err
    assert "closed" in done.err
    if "--cluster" not in argv:
        assert "ermission denied" in done.err


@pytest.mark.parametrize("framework", ["command", "nemo_rl", "rlix", "skyrl", "trl", "verl"])
@pytest.mark.parametrize(("path", "rule"), [("closed/inner", "repo.missing"), ("closed", "repo.unreadable")])
def test_a_checkout_that_may_not_be_read_is_told_alone(
    outsider: Run, framework: str, path: str, rule: str
) -> None:
    home = Path.cwd()
    spec = f"version: 1\nname: x\nframework: {framework}\nrepos: [{{name: {framework}, path: {path}}}]\n"
    (home / "spec.yaml").write_text(spec + "train: {command: [x]}\n" * (framework == "command"))
    done = outsider("validate", "spec.yaml")
    assert done.code == 2
    assert f"error[{rule}] spec.yaml:4:" in done.err
    assert ".checkout]" not in done.err
    assert "file.access" not in done.err


def test_inputs_that_may_not_be_read(outsider: Run) -> None:
    for setting in ("model={path: closed/inner/m}", "data=[{name: d, source: ./closed/inner/d}]"):
        done = outsider("validate", "hello.yaml", "--set", setting)
        assert done.code == 0, done.err
        assert "cannot be reached: permission denied" in done.err
    cached = outsider("validate", "hello.yaml", "--set", "hf_cache.home=closed", "--set", "model={id: a/b}")
    assert cached.code == 0, cached.err
    assert "cannot be reached: permission denied" in cached.err


def test_a_read_only_run_still_has_a_verdict(project: Project) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    root = project.last().root
    (root / "report.txt").unlink()
    (root / "report.txt").mkdir()  # what a write meets there, whoever tries it
    done = project.cli("report", "last")
    assert done.code == 0
    assert done.out.startswith("PASS")
    assert "the reports could not be written" in done.err
