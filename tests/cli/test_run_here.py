"""`jobspec run --here`, as far as it goes without an allocation; tests/slurm does the rest in a real one."""

from __future__ import annotations

import os

import pytest

from tests.kits.project_kit import HELLO, Project

PROFILE = "version: 1\nname: lab\nscheduler: slurm\npaths: {runs: /shared/runs}\n"


def test_spec_out_of_a_pipe_is_read_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """`jobspec run --here <(make-spec)`: its nodes are compared with those of the allocation."""
    row = f"JobId=4711 UserId=me({os.getuid()}) JobState=RUNNING NodeList=n[1-3] NumNodes=3"
    project.write("scontrol", f"#!/bin/sh\necho '{row}'\n").chmod(0o755)  # a stand-in: no Slurm here
    monkeypatch.setenv("PATH", f"{project.root}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    project.write("lab.yaml", PROFILE)
    reading, writing = os.pipe()
    os.write(writing, f"{HELLO}\nresources: {{nodes: 4}}\n".encode())
    os.close(writing)
    done = project.cli("run", "--here", f"/dev/fd/{reading}", "--cluster-file", "lab.yaml")
    os.close(reading)
    assert "the run asks for 4 nodes, the allocation 4711 has 3" in done.err
