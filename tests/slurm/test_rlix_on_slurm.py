"""Framework `rlix` on a node of a real cluster: stand-in checkouts, real Slurm, Ray, git and bash."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab
from machine import CHECKOUT

sys.path.insert(0, str(CHECKOUT / "tests/frameworks"))
from fake_rlix import make_fake_nemo_fork, make_fake_rlix

pytestmark = [pytest.mark.slurm, pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(400)]
FAKE_GPUS = CHECKOUT / "tests/frameworks/fake_gpus.sh"
NODES = ("n1", "n2", "n3", "n4")
CONFIG = "examples/configs/grpo_math_1B.yaml"


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
def test_loop_that_breaks_is_found_though_the_job_completes(lab: Lab, tmp_shared: Path) -> None:
    """Driver, job and both pipelines end with 0; one of them trained a single step of three."""
    make_fake_rlix(tmp_shared / "rlix")
    make_fake_nemo_fork(tmp_shared / "RL")
    (tmp_shared / "model").mkdir()
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
             "intermediate_size": 128, "vocab_size": 1024, "model_type": "qwen2"}  # fmt: skip
    (tmp_shared / "model/config.json").write_text(json.dumps(sizes))
    spec = {
        "framework": "rlix",
        "coverage": {"level": "multi"},
        "resources": {"gpus_per_node": 2, "time": "00:10:00"},
        "repos": [
            {"name": "rlix", "path": str(tmp_shared / "rlix"), "prove": {"import": "rlix"}},
            {"name": "nemo_rl", "path": str(tmp_shared / "RL"), "prove": {"import": "nemo_rl"}},
        ],
        "model": {"path": str(tmp_shared / "model")},
        "container": {**lab.container("none"), "env": {"FAKE_RLIX": "loop:two"}},
        "train": {"command": [str(lab.python)], "steps": 3, "overrides": {"admit_delay_s": 90}},
        "pipelines": [
            {"name": "one", "config": CONFIG, "train_gpus": [0]},
            {"name": "two", "config": CONFIG, "train_gpus": [1]},
        ],
    }
    made = lab.submit(lab.write_spec("rlix-loop", spec))
    assert lab.await_end(made["job_id"], timeout=300) == ("COMPLETED", "0:0")
    code, report = lab.report(made["run_id"])
    assert (code, report["result"]) == (1, "Fail"), report["deliverables"]
    told = {name: item["status"] for name, item in report["deliverables"].items()}
    assert (told["Run"], told["Pipelines"], told["one: Training"]) == ("Pass", "Pass", "Pass"), told
    assert (told["two: Run"], told["two: Training"]) == ("Fail", "Fail")
    assert "its training loop broke, though it returned" in report["first_cause"]["text"]
