"""The quickstart example, unchanged but for its size, on two nodes of a real cluster by an ordinary user."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.slurm.cluster_files import ALICE
from tests.slurm.lab import Lab
from tests.slurm.machine import CHECKOUT

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.ray,
    pytest.mark.train,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]


def test_two_nodes_charliecloud_alice(lab: Lab, need_runtime) -> None:  # type: ignore[no-untyped-def]
    need_runtime("charliecloud")
    home = lab.shared / "home/alice"
    shutil.copytree(
        CHECKOUT / "examples", home / "examples", ignore=shutil.ignore_patterns(".*", "__pycache__")
    )
    for path in (home / "examples", *(home / "examples").rglob("*")):
        os.chown(path, ALICE, ALICE)
    made = lab.cluster.run("ctl", ["python", "examples/make_tiny_model.py"], user="alice")
    assert made.returncode == 0, made.stderr
    container = lab.container("charliecloud")
    sets = [
        "resources.nodes=2",
        "resources.cpus_per_node=2",
        "resources.time=00:10:00",
        f"container={json.dumps(container)}",
    ]
    words = [word for each in sets for word in ("--set", each)]
    done = lab.jobspec(
        "run",
        "examples/quickstart.yaml",
        *words,
        user="alice",
        cluster="lab-charliecloud",
        timeout=480,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Pass" in done.stdout
    status = lab.status("last", user="alice")
    assert status["state"] == "COMPLETED"
    run_dir = Path(status["run_dir"])
    results = lab.results(str(run_dir))
    assert [node["name"] for node in results["nodes"]] == ["n1", "n2"]
    phases = {phase["phase"]: phase["outcome"] for phase in results["phases"]}
    assert phases["stage"] == "ok"
    assert phases["driver"] == "ok"
    manifest = json.loads((run_dir / "artifacts/manifest.json").read_text())
    assert manifest["files"]
    code, report = lab.report("last", user="alice")
    assert code == 0
    assert report["result"] == "Pass"
    assert {path.suffix for path in run_dir.glob("report.*")} == {".txt", ".md", ".json", ".html", ".log"}
