"""Checkouts that a starting spec names and nobody has cloned yet: the error has the command that does it."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from jobspec.spec.load import load_spec
from tests.kits.checkout_kit import git, write_checkout
from tests.kits.project_kit import Project

UPSTREAM = (
    "NVIDIA-NeMo/Megatron-Bridge", "NVIDIA-NeMo/RL", "NovaSky-AI/SkyRL", "TianyeGGBond/RL", "rlops/rlix",
    "verl-project/verl",
)  # fmt: skip


@pytest.mark.parametrize("framework", ["nemo_rl", "rlix", "skyrl", "verl"])
def test_missing_checkouts_of_a_starting_spec_are_told_with_the_command_that_clones_them(
    project: Project, framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands are run as they are told, with the hub's address pointed to folders of this machine."""
    monkeypatch.setenv("HOME", str(project.root))
    hub = project.root / "hub"
    for name in UPSTREAM:
        write_checkout(hub / name, {"src/a.py": "", "3rdparty/Megatron-LM/a.py": ""})
        git(hub / name, "branch", "nemo")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{hub}/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://github.com/")
    told = project.cli("init", framework, "--cluster", "slurm-pyxis", "--name", "x")
    assert told.code == 0, told.text
    missing = project.cli("validate", "x.yaml", "--json").json["specs"][0]["findings"]
    fixes = [item["fix"] for item in missing if item["rule"] == "repo.missing"]
    assert len(fixes) == len(load_spec("x.yaml", env={}).spec.repos)
    for fix in fixes:
        assert fix.partition(",")[0].removeprefix("run ") in told.text
        subprocess.run(shlex.split(fix.split("`")[1]), check=True, capture_output=True)
    after = project.cli("validate", "x.yaml", "--json").json["specs"][0]["findings"]
    assert not [item for item in after if item["rule"].startswith("repo.") and item["severity"] == "error"]
