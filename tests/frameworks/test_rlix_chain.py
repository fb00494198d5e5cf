"""Framework `rlix` through the whole chain on this machine: real bash, git, Ray; stand-in checkouts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_rlix import make_fake_nemo_fork, make_fake_rlix

FAKE_GPUS = Path(__file__).with_name("fake_gpus.sh")
MODEL = {
    "model_type": "qwen2", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": 1024,
}  # fmt: skip

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(200),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("unshare") is None,
        reason="device files that look like GPUs need root",
    ),
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    make_fake_rlix(tmp_path / "rlix")
    make_fake_nemo_fork(tmp_path / "RL")
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text(json.dumps(MODEL))
    return tmp_path


def run(project: Path, fault: str = "") -> tuple[int, dict[str, Any], Path]:
    """`jobspec run` of two pipelines on two GPUs; exit code, report and run directory."""
    program = Path(sys.executable).with_name("jobspec")
    config = "examples/configs/grpo_math_1B.yaml"
    spec = {
        "version": 1,
        "name": "chain",
        "framework": "rlix",
        "coverage": {"level": "multi"},
        "resources": {"gpus_per_node": 2, "cpus_per_node": 12},
        "repos": [
            {"name": "rlix", "path": "./rlix", "prove": {"import": "rlix"}},
            {"name": "nemo_rl", "path": "./RL", "prove": {"import": "nemo_rl"}},
        ],
        "model": {"path": str(project / "model")},
        "container": {"python": sys.executable, "env": {"FAKE_RLIX": fault}},
        "train": {"command": [sys.executable], "steps": 3, "overrides": {"admit_delay_s": 60}},
        "pipelines": [
            {"name": "one", "config": config, "train_gpus": [0]},
            {
                "name": "two",
                "config": config,
                "train_gpus": [1],
                "metrics": {"require": ["min(train/reward) > 0"]},
            },
        ],
    }
    (project / "spec.yaml").write_text(json.dumps(spec))
    words = ["unshare", "-m", "--propagation", "private", "bash", str(FAKE_GPUS), "2"]
    words += [str(program), "run", "spec.yaml"]
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(project)}
    done = subprocess.run(words, cwd=project, env=env, capture_output=True, text=True, timeout=180)
    runs = sorted(project.glob("runs/chain/*"))
    assert runs, done.stdout + done.stderr
    return done.returncode, json.loads((runs[-1] / "report.json").read_text()), runs[-1]


def test_two_pipelines_share_the_gpus_and_pass(project: Path) -> None:
    code, report, folder = run(project)
    told = {name: item["status"] for name, item in report["deliverables"].items()}
    assert (code, report["result"]) == (0, "Pass"), (told, report.get("reason"))
    own = ("Run", "Training", "Weight version", "GPU time-sharing")
    asked = [f"{name}: {part}" for name in ("one", "two") for part in own]
    assert {told[name] for name in (*asked, "two: Required metrics", "Pipelines")} == {"Pass"}
    assert told["GPUs shared between pipelines"] == "Pass"
    kept = (folder / "artifacts/rlix/configs/two.yaml").read_text()
    assert kept in json.loads((folder / "plan.json").read_text())["commands"][1]["argv"][0]
    assert not Path("/tmp/rlix/shared/hf").exists(), "the link to the run's cache is gone with the run"
    page = (folder / "report.html").read_text()
    for curve in ("one reward", "two reward"):
        assert f"<figcaption>{curve}" in page, curve


def test_pipeline_that_fails_does_not_hide_behind_the_other(project: Path) -> None:
    """RLix's driver exits with 0: one of two succeeded."""
    code, report, _ = run(project, "crash:two")
    told = {name: item["status"] for name, item in report["deliverables"].items()}
    assert (code, report["result"]) == (1, "Fail"), told
    assert (told["Run"], told["one: Run"], told["one: Training"]) == ("Pass", "Pass", "Pass"), told
    assert (told["two: Run"], told["Pipelines"]) == ("Fail", "Fail")
    assert "out of memory in sleep_partial" in report["first_cause"]["text"]
