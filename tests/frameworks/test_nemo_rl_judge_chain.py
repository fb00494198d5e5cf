"""Framework `nemo_rl` through the whole chain on this machine: real bash, git, Ray; a stand-in checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_nemo_rl import fake_bridge, fake_nemo_rl

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
    fake_nemo_rl(tmp_path / "rl")
    fake_bridge(tmp_path / "bridge")
    return tmp_path


def run(project: Path, fault: str = "", **sections: Any) -> tuple[int, dict[str, Any], Path]:
    """`jobspec run` of a minimal spec with `sections`; exit code, report and run directory."""
    program = Path(sys.executable).with_name("jobspec")
    bridge = {
        "name": "bridge",
        "path": "./bridge",
        "pythonpath": ["src"],
        "prove": {"import": "megatron.bridge"},
    }
    spec = {
        "version": 1,
        "name": "chain",
        "framework": "nemo_rl",
        "resources": {"gpus_per_node": 2, "cpus_per_node": 4},
        "repos": [bridge, {"name": "nemo_rl", "path": "./rl", "pythonpath": ["."]}],
        "container": {
            "python": sys.executable,
            "env": {
                "FAKE_NEMO_RL_FAULT": fault,
                "PATH": f"{project}/rl/bin:{program.parent}:{os.environ['PATH']}",
            },
        },
        **sections,
    }
    (project / "spec.yaml").write_text(json.dumps(spec))
    words = ["unshare", "-m", "--propagation", "private", "bash", str(FAKE_GPUS), "2"]
    words += [str(program), "run", "spec.yaml"]
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(project)}
    done = subprocess.run(words, cwd=project, env=env, capture_output=True, text=True, timeout=180)
    runs = sorted(project.glob("runs/chain/*"))
    assert runs, done.stdout + done.stderr
    return done.returncode, json.loads((runs[-1] / "report.json").read_text()), runs[-1]


def test_lora_with_its_checkpoint_passes_with_every_deliverable(project: Path) -> None:
    checks = [{"repo": "bridge", "command": [sys.executable, "-m", "pytest", "-q"], "tests": ["tests"]}]
    code, report, folder = run(project, coverage={"level": "lora", "variants": ["lora"], "checks": checks})
    told = {name: item["status"] for name, item in report["deliverables"].items()}
    assert (code, report["result"]) == (0, "Pass"), (told, report.get("reason"))
    guide = ["Bridge-side checks", "Local Bridge import in NeMo-RL", "NeMo-RL Megatron policy run",
             "Requested variants", "Metrics/log capture"]  # fmt: skip
    assert [name for name in told if name in guide] == guide
    assert {told[name] for name in (*guide, "HF import", "Checkpoint")} == {"Pass"}
    assert (folder / "attempts/1/metrics/lora/metrics.json").is_file()
    assert list(folder.rglob("attempts/1/logs/*/bridge-import.log"))


def test_a_worker_with_another_bridge_voids_a_run_that_went_well(project: Path) -> None:
    code, report, _ = run(project, "wrong-bridge")
    told = {name: item["status"] for name, item in report["deliverables"].items()}
    assert (code, report["result"]) == (3, "Blocked"), told
    assert (told["Import proof"], told["Local Bridge import in NeMo-RL"]) == ("Pass", "Blocked")
    assert "the run is void" in report["deliverables"]["Local Bridge import in NeMo-RL"]["reason"]
