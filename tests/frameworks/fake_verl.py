"""Fake checkouts of verl: a folder with a script that reads the same variables as a release's own one."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from jobspec.frameworks.verl.checkout import PREPARE_GSM8K, WRAPPER

COMMON = [
    "NUM_GPUS",
    "ENGINE",
    "MODEL_ID",
    "MODEL_PATH",
    "RM_MODEL_PATH",
    "USE_DUMMY_MODEL",
    "DUMMY_MODEL_PATH",
    "TRAIN_FILES",
    "VAL_FILES",
    "ADV_ESTIMATOR",
    "VAL_BEFORE_TRAIN",
    "TEST_FREQ",
    "RESUME_MODE",
    "SAVE_FREQ",
    "TOTAL_TRAIN_STEPS",
    "USE_DYNAMIC_BSZ",
    "MICRO_BSZ",
    "ACTOR_TP",
    "CRITIC_TP",
    "CRITIC_VPP",
    "LORA_RANK",
    "COMMON_PP",
    "COMMON_VPP",
    "COMMON_CP",
    "COMMON_TP",
    "COMMON_EP",
    "COMMON_ETP",
    "INFER_TP",
    "USE_MBRIDGE",
    "VANILLA_MBRIDGE",
    "VALUE_VANILLA_MBRIDGE",
    "PROFILE_STEPS",
]
RELEASES = {
    "0.7.0": (["ALL_OFFLOAD"], "reward_model.enable"),
    "0.7.1": (["ALL_OFFLOAD", "ROUTING_REPLAY_MODE"], "reward.reward_model.enable"),
    "0.8.0": (["ALL_OFFLOAD", "ROUTING_REPLAY_MODE", "USE_MEGATRON_FSDP"], "reward.reward_model.enable"),
    "0.9.0": (["ALL_OFFLOAD", "ROUTING_REPLAY_MODE", "USE_MEGATRON_FSDP"], "reward.reward_model.enable"),
    "main": (
        ["ALL_OFFLOAD", "ROUTING_REPLAY_MODE", "USE_MEGATRON_FSDP", "VERL_USE_UV"],
        "reward.reward_model.enable",
    ),
}


def wrapper_text(release: str) -> str:
    more, reward = RELEASES[release]
    scale = "NUM_GPUS" if release.startswith("0.7") else "1"
    lines = ["#!/usr/bin/env bash", "set -xeuo pipefail", "# USE_REMOVE_PADDING=${USE_REMOVE_PADDING:-False}"]
    lines += [f"{name}=${{{name}:-x}}" for name in (*COMMON, *more)]
    lines += ['if [ -z "${DUMMY_MODEL_CONFIG_PATH}" ]; then exit 1; fi']
    lines += [f"batch=$((MICRO_BSZ * {scale}))", f"params=({reward}=True)"]
    if release in ("0.9.0", "main"):
        lines.append('export PYTHONPATH="/workspace/Megatron-LM${PYTHONPATH:+:${PYTHONPATH}}"')
    return "\n".join(lines) + "\n"


@cache
def fake_checkout(release: str = "0.8.0") -> str:
    """The folder of a fake checkout, made once a process."""
    root = Path(tempfile.mkdtemp(prefix=f"fake-verl-{release}-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    (root / WRAPPER).parent.mkdir(parents=True)
    (root / WRAPPER).write_text(wrapper_text(release), encoding="utf-8")
    (root / PREPARE_GSM8K).parent.mkdir(parents=True)
    (root / PREPARE_GSM8K).write_text("")
    return str(root)


@cache
def fake_bridge() -> str:
    """The folder of a stand-in for Megatron-Bridge: its packages, Megatron-Core, and the guide's tests."""
    root = Path(tempfile.mkdtemp(prefix="fake-bridge-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    for name in ("src/megatron/bridge", "3rdparty/Megatron-LM/megatron/core"):
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").write_text("")
    tests = root / "tests/unit_tests/models"
    tests.mkdir(parents=True)
    (tests / "test_param_mapping.py").write_text("def test_names() -> None:\n    assert True\n")
    return str(root)
