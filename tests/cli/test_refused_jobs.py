"""A job that sbatch refuses is told once, with what to do, by every command that submits one.

`sbatch` is a script here that says what Slurm 22.05 says; a real one refuses in tests/slurm.
"""

from __future__ import annotations

import os

import pytest

from tests.kits.project_kit import HELLO, Project

pytest.importorskip("submitit")

COMPLAINT = "sbatch: error: invalid partition specified: nowhere"


@pytest.fixture
def refusing(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    tools = project.root / "tools"
    tools.mkdir()
    for name in ("sbatch", "srun", "squeue", "sacct", "scancel", "scontrol"):
        path = tools / f"{name}"
        path.write_text(f'#!/bin/bash\necho "{COMPLAINT}" >&2\nexit 1\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    runs = project.root / "shared"
    text = (
        f"version: 1\nname: site\nscheduler: slurm\nslurm: {{partition: nowhere}}\npaths: {{runs: {runs}}}\n"
    )
    project.write("site.yaml", text)
    return project


def test_check_of_a_cluster(refusing: Project) -> None:
    done = refusing.process("cluster", "check", "--cluster-file", "site.yaml")
    assert done.code == 2, done.text
    assert done.text.count(COMPLAINT) == 1
    assert done.err == (
        "error[check.refused]\n"
        "  what: the job was refused\n"
        f"  why:  {COMPLAINT}\n"
        "  fix:  set `slurm.partition` in the spec or the site profile to one of `sinfo -o %P`\n"
    )
    assert not list((refusing.root / "shared").rglob("canary"))


def test_staging_by_a_job(refusing: Project) -> None:
    home = refusing.root / "hf"
    spec = HELLO + f"model: {{id: org/name}}\nhf_cache: {{home: {home}}}\n"
    refusing.write("model.yaml", spec)
    argv = ["stage", "model.yaml", "--job", "--cluster-file", "site.yaml", "--set", "resources.time=00:10:00"]
    done = refusing.process(*argv)
    assert done.code == 2, done.text
    assert done.text.count(COMPLAINT) == 1
    assert "error[stage.refused]" in done.err


def test_submission(refusing: Project) -> None:
    argv = ["submit", "hello.yaml", "--cluster-file", "site.yaml", "--set", "resources.time=00:10:00"]
    done = refusing.process(*argv)
    assert done.code == 2, done.text
    assert done.text.count(COMPLAINT) == 1


def test_a_folder_of_runs_that_cannot_be_made(project: Project) -> None:
    project.write("file", "")
    runs = project.root / "file" / "runs"
    project.write("site.yaml", f"version: 1\nname: site\nscheduler: local\npaths: {{runs: {runs}}}\n")
    done = project.cli("cluster", "check", "--cluster-file", "site.yaml")
    assert done.code == 2
    assert "error[check.runs] paths.runs" in done.err
    assert "not a directory" in done.err.lower()
