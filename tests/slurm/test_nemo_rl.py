"""Framework `nemo_rl` on two nodes of a real cluster: stand-in checkouts, real Slurm, Ray, git and bash."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kits.chain_kit import nemo_rl_inputs
from tests.slurm.lab import FEW_CPUS, Lab

pytestmark = [pytest.mark.slurm, pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.usefixtures("counted_gpus")
def test_sizes_over_two_nodes_pass(lab: Lab, tmp_shared: Path) -> None:
    path = f"{tmp_shared}/rl/bin:{lab.python.parent}:/usr/bin:/bin"
    spec = {
        **nemo_rl_inputs(tmp_shared, str(lab.python)),
        "coverage": {"level": "parallel", "variants": ["sizes"]},
        "resources": {"nodes": 2, "gpus_per_node": 2, "time": "00:10:00", **FEW_CPUS},
        "train": {"parallel": {"tp": 2, "pp": 2}},
        "container": {**lab.container("none"), "env": {"PATH": path}},
    }
    made, report = lab.passed(lab.write_spec("nemo-rl-sizes", spec))
    told = report["deliverables"]
    assert told["Requested variants"]["evidence"][0]["text"].startswith("Overrides: [")
    assert told["Local Bridge import in NeMo-RL"]["reason"].endswith("of the Megatron worker")
    assert "cluster.num_nodes=2" in lab.head_log(made["run_dir"], "sizes")
