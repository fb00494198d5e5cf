"""Framework `verl` through the whole chain on this machine: real bash, git, pytest, Ray; stand-in trees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.kits.chain_kit import MARKS, Chain, run_chain, verl_inputs

pytestmark = MARKS


def run(folder: Path, spec: dict[str, Any]) -> Chain:
    return run_chain(folder, spec, gpus=1, env={"FAKE_VERL_RAY": "1"})


def test_save_and_resume_pass_with_every_deliverable_of_the_guide(tmp_path: Path) -> None:
    coverage = {"level": "checkpoint", "checks": [{"repo": "bridge"}]}
    done = run(tmp_path, {**verl_inputs(tmp_path), "coverage": coverage})
    assert done.result == (0, "Pass"), (done.told, done.report.get("reason"))
    guide = ["Bridge-side checks", "Local Bridge import in verl", "verl Megatron backend run",
             "Requested variants", "Log capture"]  # fmt: skip
    assert [name for name in done.told if name in guide] == guide
    assert {done.told[name] for name in guide} == {"Pass"}
    logs = done.folder / "attempts/1/logs"
    probe = next(logs.glob("*/probe.log")).read_text()
    for where in ("driver", "worker"):
        assert f"jobspec: {where} on" in probe
    assert f"megatron.core {tmp_path}/bridge/3rdparty/Megatron-LM/megatron/core" in probe
    resume = next(logs.glob("*/resume.log")).read_text()
    assert "(TaskRunnerV1 pid=" in resume, "the prefix is Ray's own"
    assert (done.folder / "checkpoints/attempt-1/global_step_2/actor/ckpt_contents.json").is_file()


def test_missing_modelopt_is_blocked_before_anything_is_trained(tmp_path: Path) -> None:
    """Mode `srun`: verl's own Ray. Level 1 would die at its first save, after the model was built."""
    inputs = verl_inputs(tmp_path)
    (tmp_path / "bridge/src/megatron/bridge/training/checkpointing.py").write_text("import modelopt\n")
    done = run(tmp_path, {**inputs, "coverage": {"level": "checkpoint"}, "launch": {"mode": "srun"}})
    assert done.result == (3, "Blocked")
    assert "No module named 'modelopt'" in done.report["first_cause"]["text"]
    assert not list(done.folder.glob("attempts/1/logs/*/train.log"))
