"""Framework `verl` through the whole chain on this machine: real bash, git, pytest, Ray; stand-in trees."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_verl import make_bridge, make_checkout

ROOT = Path(__file__).parents[2]
FAKE_GPUS = Path(__file__).with_name("fake_gpus.sh")

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
    """Checkouts as git repositories, a model, data, and nothing else."""
    make_checkout(tmp_path / "verl", "0.9.0", commit=True)
    make_bridge(tmp_path / "bridge", commit=True)
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text('{"model_type": "qwen2"}')
    maker = [sys.executable, str(ROOT / "examples/make_tiny_gsm8k.py"), str(tmp_path / "data")]
    subprocess.run(maker, check=True, capture_output=True)
    return tmp_path


def run(project: Path, **sections: Any) -> tuple[int, dict[str, Any], Path]:
    """`jobspec run` of a minimal spec with `sections`; exit code, report and run directory."""
    paths = ["src", "3rdparty/Megatron-LM"]
    bridge = {
        "name": "bridge",
        "path": "./bridge",
        "pythonpath": paths,
        "prove": {"import": "megatron.bridge"},
    }
    spec = {
        "version": 1,
        "name": "chain",
        "framework": "verl",
        "resources": {"gpus_per_node": 1, "cpus_per_node": 4},
        "repos": [{"name": "verl", "path": "./verl"}, bridge],
        "model": {"path": "./model"},
        "data": [{"name": "gsm8k", "source": "./data"}],
        "container": {"python": sys.executable, "env": {"FAKE_VERL_RAY": "1"}},
        **sections,
    }
    (project / "spec.yaml").write_text(json.dumps(spec))
    program = Path(sys.executable).with_name("jobspec")
    words = ["unshare", "-m", "--propagation", "private", "bash", str(FAKE_GPUS), "1"]
    words += [str(program), "run", "spec.yaml"]
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(project)}
    done = subprocess.run(words, cwd=project, env=env, capture_output=True, text=True, timeout=180)
    runs = sorted(project.glob("runs/chain/*"))
    assert runs, done.stdout + done.stderr
    return done.returncode, json.loads((runs[-1] / "report.json").read_text()), runs[-1]


def test_save_and_resume_pass_with_every_deliverable_of_the_guide(project: Path) -> None:
    coverage = {"level": "checkpoint", "checks": [{"repo": "bridge"}]}
    code, report, folder = run(project, coverage=coverage)
    told = {name: item["status"] for name, item in report["deliverables"].items()}
    assert (code, report["result"]) == (0, "Pass"), (told, report.get("reason"))
    guide = ["Bridge-side checks", "Local Bridge import in verl", "verl Megatron backend run",
             "Requested variants", "Log capture"]  # fmt: skip
    assert [name for name in told if name in guide] == guide
    assert {told[name] for name in guide} == {"Pass"}
    logs = folder / "attempts/1/logs"
    probe = next(logs.glob("*/probe.log")).read_text()
    for where in ("driver", "worker"):
        assert f"jobspec: {where} on" in probe
    assert f"megatron.core {project}/bridge/3rdparty/Megatron-LM/megatron/core" in probe
    resume = next(logs.glob("*/resume.log")).read_text()
    assert "(TaskRunnerV1 pid=" in resume, "the prefix is Ray's own"
    assert (folder / "checkpoints/attempt-1/global_step_2/actor/ckpt_contents.json").is_file()


def test_missing_modelopt_is_blocked_before_anything_is_trained(project: Path) -> None:
    """Mode `srun`: verl's own Ray. Level 1 would die at its first save, after the model was built."""
    (project / "bridge/src/megatron/bridge/training/checkpointing.py").write_text("import modelopt\n")
    code, report, folder = run(project, coverage={"level": "checkpoint"}, launch={"mode": "srun"})
    assert (code, report["result"]) == (3, "Blocked")
    assert "No module named 'modelopt'" in report["first_cause"]["text"]
    assert not list(folder.glob("attempts/1/logs/*/train.log"))
