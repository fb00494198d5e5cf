"""Stand-ins for checkouts of verl and Megatron-Bridge: git repositories whose programs train nothing.

The script is real bash that reads the variables of a release and hands Hydra overrides to `fake_verl_tree`'s
trainer, which prints and writes what the release would.
"""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jobspec.frameworks.verl.checkout import CONFIG, PREPARE_GSM8K, WRAPPER
from tests.kits.script_module import load_script

TREE = Path(__file__).parent / "fake_verl_tree"
# Variable -> default. Sizes of roles follow the common ones.
VARIABLES = {
    "NUM_GPUS": "8",
    "ENGINE": "vllm",
    "MODEL_ID": "Qwen/Qwen2.5-0.5B",
    "MODEL_PATH": "${HOME}/models/${MODEL_ID}",
    "RM_MODEL_PATH": "${HOME}/models/rm",
    "USE_DUMMY_MODEL": "False",
    "DUMMY_MODEL_PATH": "${HOME}/dummy_models/${MODEL_ID}",
    "TRAIN_FILES": "${HOME}/data/gsm8k/train.parquet",
    "VAL_FILES": "${HOME}/data/gsm8k/test.parquet",
    "ADV_ESTIMATOR": "gae",
    "VAL_BEFORE_TRAIN": "False",
    "TEST_FREQ": "-1",
    "RESUME_MODE": "disable",
    "SAVE_FREQ": "-1",
    "TOTAL_TRAIN_STEPS": "1",
    "USE_DYNAMIC_BSZ": "True",
    "MICRO_BSZ": "2",
    "MAX_PROMPT_LENGTH": "512",
    "MAX_RESPONSE_LENGTH": "512",
    "LORA_RANK": "0",
    "LORA_ALPHA": "${LORA_RANK}",
    "LORA_MERGE": "False",
    "COMMON_PP": "2",
    "COMMON_VPP": "2",
    "COMMON_CP": "2",
    "COMMON_TP": "2",
    "COMMON_EP": "1",
    "COMMON_ETP": "1",
    "TRAIN_TP": "${COMMON_TP}",
    "INFER_TP": "${COMMON_TP}",
    **{
        f"{role}_{size}": f"${{{'TRAIN' if size == 'TP' else 'COMMON'}_{size}}}"
        for role in ("ACTOR", "REF", "CRITIC")
        for size in ("PP", "VPP", "CP", "TP", "EP", "ETP")
    },
    "ALL_OFFLOAD": "True",
    "USE_MBRIDGE": "True",
    "VANILLA_MBRIDGE": "True",
    "VALUE_VANILLA_MBRIDGE": "${VANILLA_MBRIDGE}",
    "PROFILE_STEPS": "[1]",
}
SIZES = {
    "PP": "pipeline_model",
    "VPP": "virtual_pipeline_model",
    "CP": "context",
    "TP": "tensor_model",
    "EP": "expert_model",
    "ETP": "expert_tensor",
}
ROLES = {"ACTOR": "actor_rollout_ref.actor", "REF": "actor_rollout_ref.ref", "CRITIC": "critic"}


@dataclass(frozen=True)
class Release:
    """What distinguishes the scripts of releases: variables, the reward keys, batch rule, Megatron, uv."""

    more: dict[str, str]
    reward: str = "reward.reward_model"
    scale: str = "1"
    image_megatron: bool = False


FSDP, REPLAY = {"USE_MEGATRON_FSDP": "False"}, {"ROUTING_REPLAY_MODE": "disabled"}
RELEASES = {
    "0.7.0": Release({}, "reward_model", "NUM_GPUS"),
    "0.7.1": Release(REPLAY, scale="NUM_GPUS"),
    "0.8.0": Release(FSDP | REPLAY),
    "0.9.0": Release(FSDP | REPLAY, image_megatron=True),
    "main": Release(FSDP | REPLAY | {"VERL_USE_UV": "1"}, image_megatron=True),
}


def wrapper_text(release: str) -> str:
    """The script of a release."""
    about = RELEASES[release]
    lines = ["#!/usr/bin/env bash", "set -xeuo pipefail", "# USE_REMOVE_PADDING=${USE_REMOVE_PADDING:-False}"]
    if about.image_megatron:
        lines.append('export PYTHONPATH="/workspace/Megatron-LM${PYTHONPATH:+:${PYTHONPATH}}"')
    lines += [f"{name}=${{{name}:-{default}}}" for name, default in (VARIABLES | about.more).items()]
    lines += [
        'if [ "$USE_DUMMY_MODEL" = "True" ]; then',
        '  [ -n "${DUMMY_MODEL_CONFIG_PATH}" ] || { echo "DUMMY_MODEL_CONFIG_PATH not set"; exit 1; }',
        '  python3 scripts/init_random_model.py --hf_model_path "${MODEL_PATH}" \\',
        '    --new_config_path "${DUMMY_MODEL_CONFIG_PATH}" --output_path "${DUMMY_MODEL_PATH}"',
        '  MODEL_PATH="${DUMMY_MODEL_PATH}"',
        "fi",
        f"batch=$((MICRO_BSZ * {about.scale} * {16 if about.scale != '1' else 8}))",
    ]
    if "ROUTING_REPLAY_MODE" in about.more:
        lines += ["replay=False", '[ "$ROUTING_REPLAY_MODE" = "R3" ] && replay=True']
    lines += ["params=(", *(f"  {item}" for item in _parameters(about)), ")"]
    lines.append("python3 -m verl.trainer.main_ppo --config-path=config \\")
    lines.append("  --config-name='ppo_megatron_trainer.yaml' \"${params[@]}\" $@")
    return "\n".join(lines) + "\n"


def _parameters(about: Release) -> list[str]:
    """Hydra overrides in terms of the script's variables."""
    reward_path = "model.path" if about.reward == "reward_model" else "model_path"
    found = [
        'algorithm.adv_estimator="${ADV_ESTIMATOR}"',
        'data.train_files="${TRAIN_FILES}"',
        'data.val_files="${VAL_FILES}"',
        "data.train_batch_size=${batch}",
        "data.max_prompt_length=${MAX_PROMPT_LENGTH}",
        "data.max_response_length=${MAX_RESPONSE_LENGTH}",
        'actor_rollout_ref.model.path="${MODEL_PATH}"',
        "actor_rollout_ref.model.lora.rank=${LORA_RANK}",
        "actor_rollout_ref.model.lora.alpha=${LORA_ALPHA}",
        'actor_rollout_ref.rollout.name="${ENGINE}"',
        "actor_rollout_ref.rollout.tensor_model_parallel_size=${INFER_TP}",
        f"{about.reward}.enable=True",
        f'{about.reward}.{reward_path}="${{RM_MODEL_PATH}}"',
        "trainer.logger=console",
        "trainer.nnodes=1",
        "trainer.n_gpus_per_node=${NUM_GPUS}",
        'trainer.val_before_train="${VAL_BEFORE_TRAIN}"',
        'trainer.test_freq="${TEST_FREQ}"',
        'trainer.save_freq="${SAVE_FREQ}"',
        'trainer.resume_mode="${RESUME_MODE}"',
        "trainer.total_epochs=2",
        'trainer.total_training_steps="${TOTAL_TRAIN_STEPS}"',
        "global_profiler.steps=$PROFILE_STEPS",
    ]
    for role, key in ROLES.items():
        vanilla = "VALUE_VANILLA_MBRIDGE" if role == "CRITIC" else "VANILLA_MBRIDGE"
        found.append(f"{key}.megatron.vanilla_mbridge=${{{vanilla}}}")
        found += [f"{key}.megatron.{name}_parallel_size=${role}_{size}" for size, name in SIZES.items()]
        if "USE_MEGATRON_FSDP" in about.more:
            found.append(f"{key}.megatron.use_megatron_fsdp=${{USE_MEGATRON_FSDP}}")
    if "ROUTING_REPLAY_MODE" in about.more:
        found.append("actor_rollout_ref.actor.megatron.router_replay.mode=${ROUTING_REPLAY_MODE}")
        found.append("actor_rollout_ref.rollout.enable_rollout_routing_replay=${replay}")
    return found


def make_checkout(root: Path, release: str = "0.8.0", commit: bool = False) -> Path:
    """A stand-in for verl's checkout at `root`, as a git repository on request."""
    shutil.copytree(TREE, root, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("verl/__init__.py", "verl/trainer/__init__.py"):
        (root / name).write_text("")
    (root / "verl/version").mkdir()
    (root / "verl/version/version").write_text("0.10.0.dev\n" if release == "main" else f"{release}\n")
    (root / WRAPPER).parent.mkdir(parents=True)
    (root / WRAPPER).write_text(wrapper_text(release), encoding="utf-8")
    minimal = "tests/special_e2e/ppo_trainer/expert_parallel/qwen2moe_minimal.json"
    (root / minimal).parent.mkdir(parents=True)
    for name in ("dummy.json", minimal):
        (root / name).write_text('{"num_hidden_layers": 2}\n')
    assert (root / PREPARE_GSM8K).is_file()
    (root / CONFIG).parent.mkdir(parents=True)
    # Its configuration depends on the release that lies beside it.
    trainer = load_script(root / "verl/trainer/main_ppo.py", f"fake_main_ppo_{root.name}")
    (root / CONFIG).write_text(json.dumps(trainer.base()))
    if commit:
        commit_all(root)
    return root


def make_bridge(root: Path, commit: bool = False) -> Path:
    """A stand-in for Megatron-Bridge: its packages, Megatron-Core's, and one of the guide's tests."""
    for name in ("src/megatron/bridge", "src/megatron/bridge/training", "3rdparty/Megatron-LM/megatron/core"):
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").write_text("")
    for name in ("checkpointing", "config"):
        (root / f"src/megatron/bridge/training/{name}.py").write_text("")
    tests = root / "tests/unit_tests/models"
    tests.mkdir(parents=True)
    (tests / "test_param_mapping.py").write_text("def test_names() -> None:\n    assert True\n")
    if commit:
        commit_all(root)
    return root


def commit_all(root: Path) -> None:
    """A git repository of everything; what Python and pytest leave there is ignored, as in the real ones."""
    (root / ".gitignore").write_text("__pycache__/\n.pytest_cache/\n")
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "all")):
        subprocess.run(["git", *words], cwd=root, check=True)


def _temporary(prefix: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder / "checkout"


@cache
def fake_checkout(release: str = "0.8.0") -> str:
    """The folder of a stand-in for verl, made once a process."""
    return str(make_checkout(_temporary(f"fake-verl-{release}-"), release))


@cache
def fake_bridge() -> str:
    """The folder of a stand-in for Megatron-Bridge, made once a process."""
    return str(make_bridge(_temporary("fake-bridge-")))
