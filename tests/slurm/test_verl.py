"""Framework `verl` on two nodes of a real cluster: stand-in checkouts, real Slurm, Ray, git and bash."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab
from machine import CHECKOUT

sys.path.insert(0, str(CHECKOUT / "tests/frameworks"))
from fake_verl import make_bridge, make_checkout

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
    make_checkout(tmp_shared / "verl", "0.9.0", commit=True)
    make_bridge(tmp_shared / "bridge", commit=True)
    (tmp_shared / "model").mkdir()
    (tmp_shared / "model/config.json").write_text('{"model_type": "qwen2"}')
    maker = [sys.executable, str(CHECKOUT / "examples/make_tiny_gsm8k.py"), str(tmp_shared / "data")]
    subprocess.run(maker, check=True, capture_output=True)
    bridge = {
        "name": "bridge",
        "path": str(tmp_shared / "bridge"),
        "pythonpath": ["src", "3rdparty/Megatron-LM"],
    }
    spec = {
        "framework": "verl",
        "coverage": {"level": "parallel", "variants": ["dense"]},
        "resources": {"nodes": 2, "gpus_per_node": 2, "time": "00:10:00"},
        "repos": [
            {"name": "verl", "path": str(tmp_shared / "verl")},
            {**bridge, "prove": {"import": "megatron.bridge"}},
        ],
        "model": {"path": str(tmp_shared / "model")},
        "data": [{"name": "gsm8k", "source": str(tmp_shared / "data")}],
        "container": {
            **lab.container("none"),
            "env": {"FAKE_VERL_RAY": "1", "PATH": f"{lab.python.parent}:/usr/bin:/bin"},
        },
    }
    made = lab.submit(lab.write_spec("verl-dense", spec))
    assert lab.await_end(made["job_id"], timeout=300) == ("COMPLETED", "0:0")
    code, report = lab.report(made["run_id"])
    assert (code, report["result"]) == (0, "Pass"), report["deliverables"]
    assert report["deliverables"]["Requested variants"]["reason"].startswith("tp = 2, pp = 2")
    head = lab.results(made["run_dir"])["nodes"][0]["name"]
    log = (Path(made["run_dir"]) / f"attempts/1/logs/{head}/train.log").read_text()
    assert "trainer.nnodes=2" in log
    assert "'nnodes': 2" in log
