"""Frameworks through the whole chain: what a run needs, and a run on this machine beside stand-ins for GPUs.

The checkouts are made by `fake_*`; the tests on a real cluster take what a run needs from here, too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jobspec.frameworks.verl.settings import ACTOR, CRITIC, TRANSFORMER
from tests.kits import fake_nemo_rl, fake_rlix, fake_verl

ROOT = Path(__file__).parents[2]
FAKE_GPUS = Path(__file__).with_name("fake_gpus.sh")
PROGRAM = Path(sys.executable).with_name("jobspec")
QWEN = {
    "model_type": "qwen2", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": 1024,
}  # fmt: skip
MARKS = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(200),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("unshare") is None,
        reason="device files that look like GPUs need root",
    ),
]


@dataclass(frozen=True)
class Chain:
    """What `jobspec run` left: exit code, report and run directory."""

    code: int
    report: Mapping[str, Any]
    folder: Path

    @property
    def result(self) -> tuple[int, str]:
        return self.code, self.report["result"]

    @property
    def told(self) -> dict[str, str]:
        """The status of every deliverable."""
        return {name: item["status"] for name, item in self.report["deliverables"].items()}


def run_chain(project: Path, spec: Mapping[str, Any], *, gpus: int, env: Mapping[str, str]) -> Chain:
    """`jobspec run` of `spec` in a project folder, on a node with `gpus` device files named like GPUs."""
    full = {
        "version": 1,
        "name": "chain",
        "resources": {"gpus_per_node": gpus, "cpus_per_node": 4},
        "container": {"python": sys.executable, "env": dict(env)},
        **spec,
    }
    (project / "spec.yaml").write_text(json.dumps(full))
    words = ["unshare", "-m", "--propagation", "private", "bash", str(FAKE_GPUS), str(gpus)]
    words += [str(PROGRAM), "run", "spec.yaml"]
    own = {**os.environ, "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}", "HOME": str(project)}
    done = subprocess.run(words, cwd=project, env=own, capture_output=True, text=True, timeout=180)
    runs = sorted(project.glob("runs/chain/*"))
    assert runs, done.stdout + done.stderr
    return Chain(done.returncode, json.loads((runs[-1] / "report.json").read_text()), runs[-1])


def nemo_rl_inputs(folder: Path, python: str = sys.executable) -> dict[str, Any]:
    """Stand-in checkouts in a folder, and the sections of a spec that name them."""
    checkout = fake_nemo_rl.fake_nemo_rl(folder / "rl", python)
    bridge = _bridge(fake_nemo_rl.fake_bridge(folder / "bridge"))
    repos = [bridge, {"name": "nemo_rl", "path": str(checkout), "pythonpath": ["."]}]
    return {"framework": "nemo_rl", "repos": repos}


def rlix_inputs(folder: Path, python: str = sys.executable) -> dict[str, Any]:
    """Stand-in checkouts and a model's sizes in a folder, and the sections of a spec of two pipelines."""
    rlix, fork = fake_rlix.make_fake_rlix(folder / "rlix"), fake_rlix.make_fake_nemo_fork(folder / "RL")
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(json.dumps(QWEN))
    config = "examples/configs/grpo_math_1B.yaml"
    return {
        "framework": "rlix",
        "coverage": {"level": "multi"},
        "repos": [
            {"name": "rlix", "path": str(rlix), "prove": {"import": "rlix"}},
            {"name": "nemo_rl", "path": str(fork), "prove": {"import": "nemo_rl"}},
        ],
        "model": {"path": str(folder / "model")},
        "train": {"command": [python], "steps": 3, "overrides": {"admit_delay_s": 60}},
        "pipelines": [
            {"name": "one", "config": config, "train_gpus": [0]},
            {"name": "two", "config": config, "train_gpus": [1],
             "metrics": {"require": ["min(train/reward) > 0"]}},
        ],
    }  # fmt: skip


def verl_inputs(folder: Path) -> dict[str, Any]:
    """Stand-in checkouts, a model and real data in a folder, and the sections of a spec that name them."""
    checkout = fake_verl.make_checkout(folder / "verl", "0.9.0", commit=True)
    bridge = _bridge(fake_verl.make_bridge(folder / "bridge", commit=True), "3rdparty/Megatron-LM")
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text('{"model_type": "qwen2"}')
    maker = [sys.executable, str(ROOT / "examples/make_tiny_gsm8k.py"), str(folder / "data")]
    subprocess.run(maker, check=True, capture_output=True)
    return {
        "framework": "verl",
        "repos": [{"name": "verl", "path": str(checkout)}, bridge],
        "model": {"path": str(folder / "model"), "load": False},  # the stand-in has no tokenizer
        "data": [{"name": "gsm8k", "source": str(folder / "data")}],
        # No flash-attn is here.
        "train": {
            "overrides": {f"{role}.{TRANSFORMER}.attention_backend": "auto" for role in (ACTOR, CRITIC)}
        },
        "resources": {"gpus_per_node": 1, "cpus_per_node": 14},
    }


def _bridge(root: Path, *more: str) -> dict[str, Any]:
    proof = {"import": "megatron.bridge"}
    return {"name": "bridge", "path": str(root), "pythonpath": ["src", *more], "prove": proof}
