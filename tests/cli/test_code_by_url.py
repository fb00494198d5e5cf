"""Repositories by URL: the ref is asked for at validation, and its commit is in the lock."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.kits.checkout_kit import git
from tests.kits.project_kit import Project

REPO = """\
repos: [{{name: lib, url: "file://{root}/lib", ref: {ref}}}]
"""


@pytest.fixture
def lib(project: Project) -> Path:
    folder = project.root / "lib"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "x")
    git(folder, "branch", "work/new")
    git(folder, "commit", "-q", "--allow-empty", "-m", "later")
    return folder


@pytest.mark.parametrize(
    ("ref", "code", "rules"), [("work/new", 0, ["repo.not-fetched"]), ("work/nwe", 2, ["repo.ref-unknown"])]
)
def test_validate_asks_the_server(ref: str, code: int, rules: list[str], project: Project, lib: Path) -> None:
    project.write("spec.yaml", project.spec.read_text() + REPO.format(root=project.root, ref=ref))
    done = project.cli("validate", "spec.yaml", "--json")
    found = [item["rule"] for item in done.json["specs"][0]["findings"]]
    assert (done.code, [rule for rule in found if rule in rules]) == (code, rules), done.text
    assert not Path("runs/.checkouts").exists()


def test_the_commit_of_a_branch_is_in_the_lock(project: Project, lib: Path) -> None:
    project.write("spec.yaml", project.spec.read_text() + REPO.format(root=project.root, ref="work/new"))
    assert project.cli("render", "spec.yaml", "--out", "out").code == 0
    commit = git(lib, "rev-parse", "work/new")
    lock = yaml.safe_load(Path("out/spec.lock.yaml").read_text())
    assert (lock["repos"][0]["ref"], lock["lock"]["repos"]["lib"]["commit"]) == (commit, commit)
