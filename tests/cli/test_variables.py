"""The environment variables that jobspec reads: documented, checked, and told when their name is mistyped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobspec.cli.variables import VARIABLES
from tests.kits.project_kit import Project

ROOT = Path(__file__).parents[2]
READ = re.compile(r"""environ\.get\("([A-Z_]+)|\benv\.get\("([A-Z_]+)""")


def test_every_variable_that_commands_read_is_documented() -> None:
    # What adapters look up is in the spec's own environment, or in that of a program inside the job; what an
    # import looks up is in a stranger's script.
    files = [p for p in (ROOT / "jobspec").rglob("*.py") if not {"frameworks", "from_sbatch"} & {*p.parts}]
    read = {one or other for path in files for one, other in READ.findall(path.read_text())}
    assert {"JOBSPEC_RUNS", "HF_HOME", "XDG_STATE_HOME"} <= read
    # Two are named beside USER and NO_COLOR; a shell sets the third for a completion, the job its own folder.
    assert read - set(VARIABLES) == {"LOGNAME", "TERM", "COMP_LINE", "JOBSPEC_RUN_DIR"}


@pytest.mark.parametrize(
    ("name", "meant"), [("JOBSPEC_CLUSTRE", "JOBSPEC_CLUSTER"), ("JOBSPEC_RUN", "JOBSPEC_RUNS")]
)
def test_a_mistyped_variable_is_told(
    project: Project, monkeypatch: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    monkeypatch.setenv(name, "x")
    done = project.cli("validate", "hello.yaml", "--json")
    assert done.code == 0
    assert done.json["ok"]
    assert done.err == (
        f"warning[usage.variable] ${name}\n"
        f"  what: jobspec reads no variable `{name}`\n"
        f"  fix:  did you mean `{meant}`?\n"
    )
    monkeypatch.setenv("JOBSPEC_RUN_DIR", "/runs/x")  # in a job
    assert project.cli("validate", "hello.yaml").err == ""


def test_other_variables_are_nobodys_business(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JOBSPEC_MY_OWN", "JOBSPEC_DATA_TRAIN", "JOBSPEC_CLUSTER_OF_MINE"):
        monkeypatch.setenv(name, "x")
    assert project.cli("validate", "hello.yaml").err == ""


def test_folder_of_runs_that_is_not_there(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for argv in (["status"], ["report"], ["compare", "a", "b"]):
        done = project.cli(*argv, "--runs", "nosuch")
        assert done.code == 2
        assert "there is no folder `nosuch`" in done.err
    monkeypatch.setenv("JOBSPEC_RUNS", "nosuch")
    assert project.cli("status").out == f"no runs in {project.root}/nosuch\n"


def test_profiles_folder_that_is_not_there(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBSPEC_CLUSTERS", "/nosuch")
    for argv in (["validate", "hello.yaml"], ["cluster", "list"], ["cluster", "show"]):
        done = project.cli(*argv)
        assert done.code == 0
        assert "warning[cluster.place] $JOBSPEC_CLUSTERS\n  what: `/nosuch` does not exist" in done.err
    named = project.cli("validate", "hello.yaml", "--cluster", "mysite")
    assert named.code == 2
    assert "`/nosuch` does not exist" in named.err
