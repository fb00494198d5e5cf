"""Recipes and test-suite scripts in the forms of NeMo-RL's own (at 7ea279ab), for a stand-in checkout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobspec.frameworks.shared.nemo_recipe import set_values

HEAD = """\
#!/bin/bash
SCRIPT_DIR=$( cd -- "$( dirname -- "${BASH_SOURCE[0]}" )" &> /dev/null && pwd)
source $SCRIPT_DIR/common.env
"""
SIZES = """\
# ===== BEGIN CONFIG =====
NUM_NODES={nodes}
{gpus}STEPS_PER_RUN={once}
MAX_STEPS={steps}
NUM_RUNS=$(( (MAX_STEPS + STEPS_PER_RUN - 1) / STEPS_PER_RUN ))  # Round up
NUM_MINUTES={minutes}
# ===== END CONFIG =====
"""
RUN = """
exit_if_max_steps_reached

# Run the experiment
cd $PROJECT_ROOT
uv run examples/{entry}.py \\
    --config $CONFIG_PATH \\
    {key}=$MAX_STEPS \\
{own}    logger.log_dir=$LOG_DIR \\
    logger.wandb_enabled=True \\
    logger.wandb.project=nemo-rl \\
    logger.wandb.name=$EXP_NAME \\
    checkpointing.enabled=True \\
    checkpointing.checkpoint_dir=$CKPT_DIR \\
    $@ \\
    2>&1 | tee $RUN_LOG

# Convert tensorboard logs to json
uv run tests/json_dump_tb_logs.py $LOG_DIR --output_path $JSON_METRICS

# Only run metrics if the target step is reached
if [[ $(jq '.["train/loss"] | keys | map(tonumber) | max' $JSON_METRICS) -ge $MAX_STEPS ]]; then
    uv run tests/check_metrics.py $JSON_METRICS \\
{checks}

    # Clean up checkpoint directory after successful run to save space.
    rm -rf "$CKPT_DIR"
fi
"""
WRAPPER = """
source "$SCRIPT_DIR/common-tq.env"
# Run base script under this wrapper's identity (own log/ckpt dirs, wandb name).
export EXP_NAME="$TQ_EXP_NAME"
bash "$SCRIPT_DIR/$BASE_RECIPE.sh" "$@"
"""
QWEN = "grpo-qwen3-30ba3b-8n8g-megatron"
MOONLIGHT = "grpo-moonlight-16ba3b-4n8g-megatron"
PLANE = f"{MOONLIGHT}-tq_simple"
DRAFT = "grpo-qwen3-1.7b-1n4g-megatron-eagle3"
SFT = "sft-llama3.1-8b-1n8g-megatron"
PPO = "ppo-qwen2.5-1.5b-gsm8k-1n8g-megatron-valuetp2sp-dynbatch"
DTENSOR = "grpo-llama3.2-1b-instruct-1n8g-fsdp2tp1.v3"
ERROR = "'median(data[\"train/token_mult_prob_error\"]) < 1.1'"


def script(
    *checks: str,
    entry: str = "run_grpo",
    nodes: int = 1,
    gpus: int = 0,
    steps: int = 10,
    once: int = 0,
    minutes: int = 60,
    more: str = "",
    own: str = "",
) -> str:
    """A script of the common form; `more` stands before its training, `own` are arguments of its own."""
    key = f"{entry.removeprefix('run_')}.max_num_steps"
    sizes = SIZES.format(
        nodes=nodes,
        gpus=f"GPUS_PER_NODE={gpus}\n" if gpus else "",
        steps=steps,
        once=once or steps,
        minutes=minutes,
    )
    quoted = " \\\n".join(f"        {check}" for check in checks)
    return HEAD + sizes + more + RUN.format(entry=entry, key=key, own=own, checks=quoted)


SCRIPTS: Mapping[str, str] = {
    QWEN: script(
        ERROR,
        '"data[\\"train/token_mult_prob_error\\"][\\"$MAX_STEPS\\"] < 1.1"',
        "'mean(data[\"timing/train/total_step_time\"], -6, -1) < 220'",
        "'max(data[\"train/reward\"]) > 0.01'",
        "'min(data[\"train/reward\"]) > 0'",
        "'abs(median(data[\"train/loss\"])) < 0.05'",
        nodes=8,
        steps=30,
        once=10,
        minutes=100,
        more="export NRL_IGNORE_TP_ACCURACY_CHECK=1\nexport NCCL_NVLS_ENABLE=0\n",
    ),
    MOONLIGHT: script(ERROR, "'mean(data[\"train/reward\"]) > 0.45'", nodes=4, gpus=8, steps=30),
    PLANE: HEAD.replace("source $SCRIPT_DIR/common.env\n", "")
    + SIZES.format(nodes=4, gpus="", steps=20, once=20, minutes=45)
    + WRAPPER,
    DRAFT: script(
        "'min(data[\"train/draft_loss\"]) > 0'",
        nodes=1,
        gpus=4,
        steps=50,
        more="POLICY_MODEL=${NRL_EAGLE3_POLICY_MODEL:-Qwen/Qwen3-1.7B}\n",
        own='    policy.model_name="$POLICY_MODEL" \\\n    data.train.data_path=$TRAIN_PATH \\\n',
    ),
    SFT: script("\"data['train/loss']['$MAX_STEPS'] < 0.9\"", entry="run_sft", steps=250, minutes=15),
    PPO: script(ERROR, entry="run_ppo"),
    DTENSOR: script(ERROR, gpus=8),
}
MEGATRON = "policy.megatron_cfg"
VALUES: Mapping[str, Mapping[str, Any]] = {
    QWEN: {
        "policy.model_name": "Qwen/Qwen3-30B-A3B",
        f"{MEGATRON}.tensor_model_parallel_size": 2,
        f"{MEGATRON}.expert_model_parallel_size": 8,
        f"{MEGATRON}.sequence_parallel": True,
        "cluster.num_nodes": 8,
        "cluster.gpus_per_node": 8,
    },
    MOONLIGHT: {
        "policy.model_name": "moonshotai/Moonlight-16B-A3B-Instruct",
        f"{MEGATRON}.pipeline_model_parallel_size": 4,
        "cluster.num_nodes": 4,
    },
    DRAFT: {"policy.model_name": "Qwen/Qwen3-1.7B", "policy.draft.enabled": True},
    SFT: {"policy.model_name": "meta-llama/Llama-3.1-8B", f"{MEGATRON}.tensor_model_parallel_size": 2},
    PPO: {"policy.model_name": "Qwen/Qwen2.5-1.5B"},
    DTENSOR: {
        "policy.model_name": "meta-llama/Llama-3.2-1B-Instruct",
        f"{MEGATRON}.enabled": False,
        "policy.dtensor_cfg.enabled": True,
    },
}


def add_suites(root: Path, base: Path) -> None:
    """Write the recipes, each from the stand-in recipe `base`, with their scripts."""
    recipes, suites = root / "examples/configs/recipes/llm", root / "tests/test_suites/llm"
    recipes.mkdir(parents=True, exist_ok=True)
    suites.mkdir(parents=True, exist_ok=True)
    common = json.loads(base.read_text())
    common.pop("defaults", None)
    steps = ("grpo", "sft", "ppo")
    common = set_values(common, [(f"{name}.max_num_steps", 1) for name in steps])
    for name, values in VALUES.items():
        (recipes / f"{name}.yaml").write_text(json.dumps(set_values(common, values.items())))
    plane = {"enabled": True, "impl": "transfer_queue", "backend": "simple", "storage_capacity": 1}
    plane |= dict.fromkeys(("num_storage_units", "claim_meta_poll_interval_s"), 1)
    plane |= dict.fromkeys(("global_segment_size", "local_buffer_size"), 1)
    (recipes / f"{PLANE}.yaml").write_text(json.dumps({"defaults": f"{MOONLIGHT}.yaml", "data_plane": plane}))
    for entry in ("run_sft", "run_ppo"):
        (root / f"examples/{entry}.py").touch()
    for name, text in SCRIPTS.items():
        (suites / f"{name}.sh").write_text(text)
