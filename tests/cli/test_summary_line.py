"""The last line of `validate` says how many errors are where, and nothing is told twice."""

from __future__ import annotations

import json

import pytest

from tests.kits.project_kit import HELLO, Project

BAD_SITE = "version: 1\nname: site\nscheduler: pbs\n"


def test_errors_are_counted_where_they_are(project: Project) -> None:
    project.write("site.yaml", BAD_SITE)
    project.write("bad.yaml", HELLO + "lunch: 1\ntrian: 2\n")
    done = project.cli("validate", "bad.yaml", "--cluster-file", "site.yaml")
    assert done.code == 2
    assert done.out == "2 errors in bad.yaml, 1 in site profile site.yaml\n"
    assert done.err.count("error[") == 3
    good = project.cli("validate", "hello.yaml", "--cluster-file", "site.yaml")
    assert good.out == "1 error in site profile site.yaml\n"


def test_a_profile_found_by_its_name_is_counted_apart(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("site.yaml", BAD_SITE)
    monkeypatch.setenv("JOBSPEC_CLUSTERS", str(project.root))
    project.write("bad.yaml", HELLO.replace("name: hello", "name: hello\ncluster: site"))
    done = project.cli("validate", "bad.yaml")
    assert done.out == f"1 error in site profile {project.root}/site.yaml\n"


def test_options_and_variables_are_counted_apart(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write("bad.yaml", HELLO + "lunch: 1\n")
    monkeypatch.setenv("JOBSPEC_CLUSTER", "nosuch")
    done = project.cli("validate", "bad.yaml", "nosuch.yaml", "--set", "train.stepz=1")
    assert done.out == (
        "1 error in bad.yaml, 1 in nosuch.yaml, 1 in --set train.stepz=1, 1 in $JOBSPEC_CLUSTER\n"
    )
    assert done.err.count("error[cluster.unknown] $JOBSPEC_CLUSTER") == 1


def test_a_profile_is_told_once_for_several_specs(project: Project) -> None:
    project.write("site.yaml", BAD_SITE)
    project.write("two.yaml", HELLO)
    argv = ["validate", "hello.yaml", "two.yaml", "--cluster-file", "site.yaml"]
    done = project.cli(*argv)
    assert done.out == "1 error in site profile site.yaml\n"
    assert done.err.count("error[") == 1
    assert [len(spec["findings"]) for spec in json.loads(project.cli(*argv, "--json").out)["specs"]] == [1, 1]


def test_broken_spec_and_broken_profile_are_told_at_once(project: Project) -> None:
    project.write("site.yaml", BAD_SITE)
    project.write("bad.yaml", HELLO + "lunch: 1\n")
    done = project.cli("submit", "bad.yaml", "--cluster-file", "site.yaml")
    assert done.code == 2
    assert "lunch" in done.err
    assert "pbs" in done.err
