"""Framework `nemo_rl` through the whole chain on this machine: real bash, git, Ray; a stand-in checkout."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from tests.kits.chain_kit import MARKS, PROGRAM, Chain, nemo_rl_inputs, run_chain

pytestmark = MARKS


def run(folder: Path, fault: str = "", **sections: Any) -> Chain:
    spec = {**nemo_rl_inputs(folder), **sections}
    path = f"{folder}/rl/bin:{PROGRAM.parent}:{os.environ['PATH']}"
    return run_chain(folder, spec, gpus=2, env={"FAKE_NEMO_RL_FAULT": fault, "PATH": path})


def test_lora_with_its_checkpoint_passes_with_every_deliverable(tmp_path: Path) -> None:
    checks = [{"repo": "bridge", "command": [sys.executable, "-m", "pytest", "-q"], "tests": ["tests"]}]
    done = run(tmp_path, coverage={"level": "lora", "variants": ["lora"], "checks": checks})
    assert done.result == (0, "Pass"), (done.told, done.report.get("reason"))
    guide = ["Bridge-side checks", "Local Bridge import in NeMo-RL", "NeMo-RL Megatron policy run",
             "Requested variants", "Metrics/log capture"]  # fmt: skip
    assert [name for name in done.told if name in guide] == guide
    assert {done.told[name] for name in (*guide, "HF import", "Checkpoint")} == {"Pass"}
    assert (done.folder / "attempts/1/metrics/lora/metrics.json").is_file()
    assert list(done.folder.rglob("attempts/1/logs/*/bridge-import.log"))


def test_a_worker_with_another_bridge_voids_a_run_that_went_well(tmp_path: Path) -> None:
    done = run(tmp_path, "wrong-bridge")
    assert done.result == (3, "Blocked"), done.told
    told = done.told
    assert (told["Import proof"], told["Local Bridge import in NeMo-RL"]) == ("Pass", "Blocked")
    assert "the run is void" in done.report["deliverables"]["Local Bridge import in NeMo-RL"]["reason"]
