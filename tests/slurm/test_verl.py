"""Framework `verl` on two nodes of a real cluster: stand-in checkouts, real Slurm, Ray, git and bash."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.frameworks.verl.settings import QUEUE_UNITS
from tests.kits.chain_kit import verl_inputs
from tests.slurm.lab import Lab

pytestmark = [pytest.mark.slurm, pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.usefixtures("counted_gpus")
def test_sizes_over_two_nodes_pass(lab: Lab, tmp_shared: Path) -> None:
    env = {"FAKE_VERL_RAY": "1", "PATH": f"{lab.python.parent}:/usr/bin:/bin"}
    inputs = verl_inputs(tmp_shared)
    # The test's nodes are small: one storage unit of TransferQueue instead of eight.
    inputs["train"]["overrides"][QUEUE_UNITS] = 1
    spec = {
        **inputs,
        "coverage": {"level": "parallel", "variants": ["dense"]},
        "resources": {"nodes": 2, "gpus_per_node": 2, "time": "00:10:00", "cpus_per_node": 8},
        "container": {**lab.container("none"), "env": env},
    }
    made, report = lab.passed(lab.write_spec("verl-dense", spec))
    assert report["deliverables"]["Requested variants"]["reason"].startswith("tp = 2, pp = 2")
    log = lab.head_log(made["run_dir"], "train")
    assert "trainer.nnodes=2" in log
    assert "'nnodes': 2" in log
