"""What users read is true of what they gave, and says where to go on. Each case was met by using jobspec."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.kits.project_kit import HELLO, Project

FIXTURE = Path(__file__).parents[1] / "fixtures/skyrl_fsdp"


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["validate", "helo.yaml"], "fix:  did you mean `hello.yaml`?"),
        (["validate", "nosuch/hello.yaml"], "fix:  check the path: there is no folder `nosuch`"),
        (["explain", "hello.yaml", "trian"], "why:  did you mean `train`?"),
        (["explain", "hello.yaml", "memry"], "why:  did you mean `memory`?"),
        (["render", "hello.yaml", "--out", "."], "fix:  name a folder that does not exist yet"),
        (["init", "--name", ""], "what: argument --name: the value is empty"),
        (["init", "--out", "nosuch/x.yaml"], "fix:  name a file in an existing folder"),
        (["judge", ".", "--framework", "command", "--format", "csv"], "invalid choice: 'csv'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_advice_fits_the_mistake(project: Project, argv: list[str], line: str) -> None:
    done = project.cli(*argv)
    assert done.code == 2
    assert line in done.err


def test_files_that_are_hidden_are_not_proposed(project: Project) -> None:
    (project.root / ".pre-commit-config.yaml").write_text("x: 1\n")
    assert "files there: hello.yaml\n" in project.cli("validate", "other.yml").err


def test_a_cluster_from_the_environment_is_said_to_be(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBSPEC_CLUSTER", "nosuch")
    assert project.cli("validate", "hello.yaml").err.startswith("error[cluster.unknown] $JOBSPEC_CLUSTER\n")
    typed = project.cli("validate", "hello.yaml", "--cluster", "other").err
    assert typed.startswith("error[cluster.unknown] --cluster other\n")
    project.write("site.yaml", HELLO.replace("framework:", "cluster: third\nframework:"))
    monkeypatch.delenv("JOBSPEC_CLUSTER")
    in_spec = project.cli("validate", "site.yaml").err
    assert in_spec.startswith("error[cluster.unknown] site.yaml:3:10 cluster\n")


def test_explain_shows_the_level_in_force(project: Project) -> None:
    (project.root / "l.yaml").write_text(
        "version: 1\nname: l\nframework: command\ncoverage: {level: run}\ntrain: {command: [x]}\n"
    )
    found = project.cli("explain", "l.yaml", "coverage.level", "--level", "0", "--json").json
    assert found == {"coverage.level": {"value": "run", "origin": "set --level 0"}}


def test_explain_takes_its_key_after_options(project: Project) -> None:
    found = project.cli("explain", "hello.yaml", "--set", "name=other", "name", "--json").json
    assert found == {"name": {"value": "other", "origin": "set --set name=other"}}
    assert project.cli("explain", "hello.yaml", "--sett", "a=b", "name").code == 2


def test_several_specs_may_have_options_between_them(project: Project) -> None:
    done = project.cli("validate", "hello.yaml", "--level", "run", "hello.yaml", "nosuch.yaml")
    assert done.code == 2
    assert "1 error in nosuch.yaml" in done.out


def test_a_checkout_that_is_not_there_is_one_mistake(project: Project) -> None:
    for name in ("nemo_rl", "verl", "skyrl"):
        project.cli("init", "--framework", name, "--out", f"{name}.yaml")
        errors = project.cli("validate", f"{name}.yaml").err
        assert "error[repo.missing]" in errors
        assert ".checkout]" not in errors
        allowed = project.cli("validate", f"{name}.yaml", "--allow", "repo.missing").err
        assert f"error[{name}.checkout]" in allowed


def test_driver_script_says_where_its_command_runs(project: Project) -> None:
    project.cli("render", "hello.yaml", "--out", "out")
    assert "\n# command, on all nodes\n" in (project.root / "out/driver.sh").read_text()


def test_a_run_directory_elsewhere_keeps_its_name_and_its_digits(project: Project) -> None:
    shutil.copytree(FIXTURE, project.root / "copy/run")
    (found,) = project.cli("status", "copy/run", "--json").json
    assert found["name"] == "skyrl-smollm2"
    assert "12485" in project.cli("status", "copy/run").out
    table = project.cli("compare", "copy/run", "copy/run", "--metric", "trainer/tokens_per_second_per_gpu")
    assert "3239 -> 12485 (max 12485)" in table.out


def test_several_runs_have_one_summary(project: Project) -> None:
    project.write("bad.yaml", HELLO.replace("name: hello", "name: bad").replace("echo", "false"))
    project.cli("run", "hello.yaml")
    project.cli("run", "bad.yaml")
    names = [run["run_id"] for run in project.cli("status", "--json").json]
    done = project.cli("report", *names, "--format", "summary")
    assert done.code == 1
    assert done.out.startswith("Result: Fail - 1 of 2 runs passed\n")
    refused = project.cli("report", *names)
    assert refused.code == 2
    assert "several runs, none of them a sweep, have a summary only" in refused.err


def test_a_baseline_is_a_run_a_folder_or_a_file(project: Project) -> None:
    log = "".join(
        f"{{'loss': {2 - step / 30}, 'reward': {step / 40}, 'epoch': {step / 30}}}\n" for step in range(30)
    )
    for name in ("new", "good"):
        (project.root / name).mkdir()
        (project.root / name / "train.log").write_text(log)
    argv = ["judge", "new", "--framework", "trl", "--learning", "reward", "--steps", "30"]
    assert "no known-good baseline was compared" in project.cli(*argv).out
    for place in ("good", "good/train.log"):
        done = project.cli(*argv, "--baseline", place)
        assert "Known-good baseline" in done.out
        assert "same as the baseline" in done.out
        assert "no known-good baseline was compared" not in done.out
    assert project.cli(*argv, "--baseline", "nosuch").code == 2
