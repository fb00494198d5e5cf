"""A file that was given as something else: one finding that says what it is, and none about its keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.spec.find_site import load_cluster
from jobspec.spec.load import load_spec

ROOT = Path(__file__).parents[3]
SPECS = sorted((ROOT / "examples").rglob("*.yaml"))
PROFILES = sorted((ROOT / "clusters").glob("*.yaml"))


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.name)
def test_a_profile_is_no_spec(path: Path) -> None:
    with pytest.raises(JobspecError) as caught:
        load_spec(path)
    (found,) = caught.value.findings
    assert (found.rule, found.file) == ("spec.kind", str(path))
    assert found.what == "this is a site profile, and a job spec is wanted"
    assert "`scheduler`" in found.why
    assert "`--cluster-file FILE`" in found.fix


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.name)
def test_a_spec_is_no_profile(path: Path) -> None:
    with pytest.raises(JobspecError) as caught:
        load_cluster(None, path, env={})
    (found,) = caught.value.findings
    assert (found.rule, found.what) == ("spec.kind", "this is a job spec, and a site profile is wanted")
    assert "given as SPEC" in found.fix


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("framework: trl\n", "this is a job spec, and a site profile is wanted"),
        ("name: x\ntrain: {steps: 1}\ndata: []\n", "this is a job spec, and a site profile is wanted"),
        ("grpo: {}\npolicy: {}\nloss_fn: {}\n", "a site profile has none of its 3 keys"),
    ],
)
def test_no_profile(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(JobspecError) as caught:
        load_cluster(None, path, env={})
    (found,) = caught.value.findings
    assert what in found.what


@pytest.mark.parametrize(
    "text",
    [
        "version: 1\nname: x\nenv: {A: b}\n",  # one stray key and no `framework` yet
        "version: 1\nname: x\nframework: command\nslurm: {}\nnode: {}\npaths: {}\n",  # both
        "framwork: trl\nname: x\n",
        "framwork: trl\n",
    ],
)
def test_a_spec_with_mistakes_stays_a_spec(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(JobspecError) as caught:
        load_spec(path)
    rules = {found.rule for found in caught.value.findings}
    assert "spec.kind" not in rules
    assert rules & {"spec.unknown-key", "spec.missing"}


def test_a_binary_file_is_said_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "runtime.pyz"
    path.write_bytes(b"#!/usr/bin/env python3\nPK\x03\x04\x14\x00\x00\x00\xa8\xff")
    with pytest.raises(JobspecError) as caught:
        load_spec(path)
    (found,) = caught.value.findings
    assert (found.rule, found.what) == ("spec.encoding", "the file is binary")


def test_a_directory_names_the_specs_in_it(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text("")
    with pytest.raises(JobspecError) as caught:
        load_spec(tmp_path)
    assert caught.value.findings[0].fix == "name a `.yaml` file in it: spec.yaml"
