"""A rendered folder in place of a spec: checked, shown and started without the profile it was made for."""

from __future__ import annotations

import pytest

from jobspec.runs.paths import RunPaths
from tests.kits.project_kit import Project

SITE = """\
version: 1
name: mine
scheduler: local
paths: {runs: ./elsewhere, node_local: /tmp/js-mine}
env: {ODD: "$${not a reference}"}
hooks: {setup: ["export SEEN=${HOME}"]}
"""


@pytest.fixture
def folder(project: Project) -> RunPaths:
    """Rendered for a profile that is gone."""
    project.write("mine.yaml", SITE)
    done = project.cli("render", "hello.yaml", "--cluster-file", "mine.yaml", "--out", "out")
    assert done.code == 0, done.text
    (project.root / "mine.yaml").unlink()
    return RunPaths(project.root / "out")


def test_it_holds_the_profile_as_the_run_has_it(project: Project, folder: RunPaths) -> None:
    text = folder.site.read_text()
    assert f"runs: {project.root}/elsewhere" in text
    again = project.cli("render", "hello.yaml", "--cluster-file", str(folder.site), "--out", "again")
    assert again.code == 0, again.text
    assert (project.root / "again/site.yaml").read_text() == text
    script = (project.root / "again/job.sbatch").read_text()
    assert "export SEEN=${HOME}" in script
    assert "$${" not in (project.root / "again/plan.json").read_text()


def test_it_validates_dry_runs_and_runs(project: Project, folder: RunPaths) -> None:
    checked = project.cli("validate", "out")
    assert (checked.code, checked.out) == (0, "out: ok\n"), checked.text
    shown = project.cli("submit", "out", "--dry-run", "--json")
    assert shown.code == 0, shown.text
    assert shown.json["job_sbatch"] == folder.job.read_text()
    assert shown.json["plan"]["nodes"] == [
        {"nodes": "0", "count": "1", "role": "1 process of the command", "gpus": "none"}
    ]
    assert shown.json["forecast"] is None
    assert not folder.state.exists()
    assert project.cli("submit", "out", "--watch").code == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [(("--set", "train.steps=3"), "cannot change a rendered folder"), (("--allow", "repo"), "`--allow`")],
)
def test_nothing_changes_it(project: Project, folder: RunPaths, options: tuple[str, str], says: str) -> None:
    for command in (("validate", "out"), ("submit", "out", "--dry-run")):
        done = project.cli(*command, *options)
        assert done.code == 2
        assert says in done.text


def test_what_is_wrong_with_it_is_told_before_it_starts(project: Project, folder: RunPaths) -> None:
    folder.root.rename(project.root / "moved")
    done = project.cli("validate", "moved")
    assert done.code == 2
    assert "error[launch.moved]" in done.text
    (project.root / "moved/plan.json").write_text("{")
    assert "`plan.json` cannot be read" in project.cli("submit", "moved", "--dry-run").text
