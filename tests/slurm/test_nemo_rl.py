"""Framework `nemo_rl` on two nodes of a real cluster: stand-in checkouts, real Slurm, Ray, git and bash."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab
from machine import CHECKOUT

sys.path.insert(0, str(CHECKOUT / "tests/frameworks"))
from fake_nemo_rl import fake_bridge, fake_nemo_rl

pytestmark = [pytest.mark.slurm, pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(400)]
FAKE_GPUS = CHECKOUT / "tests/frameworks/fake_gpus.sh"
NODES = ("n1", "n2")


@pytest.fixture
def counted_gpus(lab: Lab) -> Iterator[None]:
    """Two device files named like GPUs on each node; the bare nodes have none."""
    for node in NODES:
        made = lab.cluster.run(node, ["bash", str(FAKE_GPUS), "2"])
        assert made.returncode == 0, made.stderr
    yield
    for node in NODES:
        lab.cluster.run(node, ["umount", "-l", "/dev"])


@pytest.mark.usefixtures("counted_gpus")
def test_sizes_over_two_nodes_pass(lab: Lab, tmp_shared: Path) -> None:
    root = fake_nemo_rl(tmp_shared / "rl", str(lab.python))
    bridge = {"name": "bridge", "path": str(fake_bridge(tmp_shared / "bridge")), "pythonpath": ["src"]}
    spec = {
        "framework": "nemo_rl",
        "coverage": {"level": "parallel", "variants": ["sizes"]},
        "resources": {"nodes": 2, "gpus_per_node": 2, "time": "00:10:00"},
        "train": {"parallel": {"tp": 2, "pp": 2}},
        "repos": [
            {**bridge, "prove": {"import": "megatron.bridge"}},
            {"name": "nemo_rl", "path": str(root), "pythonpath": ["."]},
        ],
        "container": {
            **lab.container("none"),
            "env": {"PATH": f"{root}/bin:{lab.python.parent}:/usr/bin:/bin"},
        },
    }
    made = lab.submit(lab.write_spec("nemo-rl-sizes", spec))
    assert lab.await_end(made["job_id"], timeout=300) == ("COMPLETED", "0:0")
    code, report = lab.report(made["run_id"])
    assert (code, report["result"]) == (0, "Pass"), report["deliverables"]
    told = report["deliverables"]
    assert told["Requested variants"]["evidence"][0]["text"].startswith("Overrides: [")
    assert told["Local Bridge import in NeMo-RL"]["reason"].endswith("the Megatron worker")
    head = lab.results(made["run_dir"])["nodes"][0]["name"]
    log = (Path(made["run_dir"]) / f"attempts/1/logs/{head}/sizes.log").read_text()
    assert "cluster.num_nodes=2" in log
