"""Code of others: which checkout runs, what looking at one runs, and what a URL may hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kits.checkout_kit import git
from tests.kits.project_kit import Project

SPEC = """\
version: 1
name: {name}
framework: command
launch: {{mode: srun}}
repos: [{{name: lib, {source}}}]
train: {{command: [python3, -c, "import who; print('CODE FROM', who.WHO)"]}}
"""


def repository(folder: Path, text: str) -> str:
    """A commit on `main` whose module `who` tells `text`."""
    if not folder.exists():
        folder.mkdir()
        git(folder, "init", "-q", "-b", "main")
    (folder / "who.py").write_text(f"WHO = '{text}'\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", text)
    return git(folder, "rev-parse", "HEAD")


def test_two_urls_with_one_name_and_ref_run_their_own_code(project: Project) -> None:
    for name in ("one", "two"):
        commit = repository(project.root / name, name)
        source = f"url: 'file://{project.root}/{name}', ref: main"
        project.write(f"{name}.yaml", SPEC.format(name=name, source=source))
        assert project.cli("run", f"{name}.yaml").code == 0
        run = project.last()
        assert f"CODE FROM {name}\n" in project.cli("logs", run.root).out
        assert run.lock.read_text().count(commit) == 2  # `ref`, and `lock.repos`
    repository(project.root / "two", "two later")
    assert project.cli("run", "two.yaml").code == 0
    assert "CODE FROM two later\n" in project.cli("logs", project.last().root).out


def test_validate_runs_no_program_of_the_checkouts_configuration(project: Project) -> None:
    """A clean filter and a hook, as in a checkout that somebody copied with its `.git`."""
    repo = project.root / "repo"
    repository(repo, "x")
    (repo / ".gitattributes").write_text("*.py filter=f\n")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "attributes")
    git(repo, "config", "filter.f.clean", f"touch {project.root}/ran-clean; cat")
    hook = repo / "hk" / "post-index-change"
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\ntouch {project.root}/ran-hook\n")
    hook.chmod(0o755)
    git(repo, "config", "core.hooksPath", str(hook.parent))
    (repo / "who.py").write_text("WHO = 'y'\n")
    (repo / "new.py").write_text("3\n")
    project.write("spec.yaml", SPEC.format(name="x", source=f"path: {repo}"))
    assert project.cli("validate", "spec.yaml").code == 0
    assert not [path.name for path in project.root.glob("ran-*")]


@pytest.mark.parametrize("tail", ["?access_token=EXAMPLETOKEN", "#t=EXAMPLETOKEN"])
def test_a_token_in_a_url_is_refused_and_shown_nowhere(tail: str, project: Project) -> None:
    source = f"url: 'https://127.0.0.1:1/x.git{tail}', ref: main"
    project.write("spec.yaml", SPEC.format(name="x", source=source))
    for command in (["validate", "spec.yaml"], ["render", "spec.yaml"], ["submit", "spec.yaml"]):
        done = project.cli(*command)
        assert (done.code, "spec.secret" in done.text, "EXAMPLETOKEN" in done.text) == (2, True, False)
    assert not (project.root / "runs").exists()
