"""`cluster check --image`: a container of the profile's runtime starts on the node, or says why not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobspec.cli.commands.cluster import _container
from jobspec.launchers.function_jobs.container_check import Start, judge_container, start_container
from jobspec.spec.find_site import parse_cluster
from jobspec.spec.site import ClusterProfile

SITE = """\
version: 1
name: site
scheduler: slurm
container: {{runtime: {runtime}}}
paths: {{runs: /shared/runs}}
hooks: {{setup: ["export SET=up"]}}
"""
NODE = {"host": "n1"}
# What pyxis prints of enroot's log; tests/triage has the whole one.
UNAUTHORIZED = "pyxis:     [ERROR] URL https://nvcr.io/proxy_auth returned error code: 401 Unauthorized"


def site(runtime: str) -> ClusterProfile:
    return parse_cluster(SITE.format(runtime=runtime), Path("site.yaml")).profile


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/bash\n{text}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_pyxis_starts_it_by_a_step_on_this_very_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "srun", f'printf "%s\\n" "$@" "$SET" >{tmp_path}/argv; echo Python 3.12.3')
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    assert start_container(_container(site("pyxis"), "nvcr.io#nvidia/x:1", 300)) == {"python": "3.12.3"}
    asked = (tmp_path / "argv").read_text().splitlines()
    assert asked[:5] == [
        "--overlap", "--nodes=1", "--ntasks=1", "--nodelist=n7", "--container-image=nvcr.io#nvidia/x:1",
    ]  # fmt: skip
    assert asked[-3:] == ["python3", "--version", "up"]
    assert not any(word.startswith("--container-name") for word in asked), "it would stay on the node"


def test_program_gets_the_command_behind_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "apptainer", f'echo "$*" >{tmp_path}/argv; echo Python 3.12.3')
    assert start_container(_container(site("apptainer"), "/i/x.sif", 300)) == {"python": "3.12.3"}
    assert (tmp_path / "argv").read_text().endswith("--no-home /i/x.sif python3 --version\n")


def test_known_failure_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(
        tmp_path,
        monkeypatch,
        "srun",
        f'echo "{UNAUTHORIZED}" >&2; echo "srun: error: n7: task 0" >&2; exit 1',
    )
    started = start_container(_container(site("pyxis"), "nvcr.io#nvidia/x:1", 300))
    (finding,) = judge_container(site("pyxis"), {**NODE, "started": started})
    assert (finding.rule, finding.is_error, finding.node) == ("check.container", True, "n1")
    assert finding.why == UNAUTHORIZED
    assert "credentials" in finding.fix


def test_container_that_says_nothing_is_told_by_its_code() -> None:
    assert start_container(Start(words=("bash", "-c", "exit 9"))) == {
        "problem": "it ended with exit code 9 and said nothing"
    }


def test_import_that_takes_too_long_is_ended() -> None:
    assert start_container(Start(words=("bash", "-c", "sleep 60"), timeout_s=0.2)) == {
        "problem": "it has not started within 0 s"
    }


@pytest.mark.parametrize(("runtime", "rules"), [("pyxis", ["check.container"]), ("none", [])])
def test_nothing_is_claimed_of_a_container_that_was_not_tried(runtime: str, rules: list[str]) -> None:
    found = list(judge_container(site(runtime), {**NODE, "started": None}))
    assert [finding.rule for finding in found] == rules
    assert not any(finding.is_error for finding in found)
