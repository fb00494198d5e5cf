"""A stand-in for a NeMo-RL checkout: a git repository whose scripts keep the contract of the real ones.

The scripts are real bash and do what the maintained ones do around the training: remove their own folder,
tee a log, dump metrics, check them. `trainer.py` stands in for the training, `uv` for uv. The training is
broken by `FAKE_NEMO_RL_FAULT`; see `fake_nemo_rl_tree/trainer.py` for the faults.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.kits.framework_kit import make_fake_nemo_rl

TREE = Path(__file__).with_name("fake_nemo_rl_tree")
ENTRIES = {
    "run_grpo": "grpo_math_1B.yaml",
    "run_sft": "sft.yaml",
    "run_dpo": "dpo.yaml",
    "run_distillation": "distillation_math.yaml",
    "run_vlm_grpo": "vlm_grpo_3B.yaml",
    "run_grpo_single_controller": "grpo_math_1B_megatron_single_controller.yaml",
}
"""Entry points, each with the recipe that it takes where the script names none."""
UV = """\
#!/usr/bin/env bash
# A stand-in for uv: drops the options of `uv run` and runs the command with one Python.
set -eu
[ "$1" = run ] && shift
while [[ "${{1:-}}" == --* ]]; do
  case "$1" in --extra|--group|--project) shift 2 ;; *) shift ;; esac
done
case "$1" in
  coverage) shift; while [[ "$1" != *.py ]]; do shift; done; exec {python} "$@" ;;
  *.py) exec {python} "$@" ;;
  python|python3) shift; exec {python} "$@" ;;
  *) exec "$@" ;;
esac
"""
HEAD = """\
#!/bin/bash
SCRIPT_DIR=$( cd -- "$( dirname -- "${BASH_SOURCE[0]}" )" &> /dev/null && pwd)
PROJECT_ROOT=$(realpath $SCRIPT_DIR/../..)
set -eou pipefail
EXP_NAME=$(basename $0 .sh)
EXP_DIR=$SCRIPT_DIR/$EXP_NAME
LOG_DIR=$EXP_DIR/logs
CKPT_DIR=$EXP_DIR/ckpts
JSON_METRICS=$EXP_DIR/metrics.json
RUN_LOG=$EXP_DIR/run.log
export PYTHONPATH=${PROJECT_ROOT}:${PYTHONPATH:-}
rm -rf $EXP_DIR $LOG_DIR
mkdir -p $EXP_DIR $LOG_DIR
cd $PROJECT_ROOT
"""
COVERAGE = "uv run coverage run -a --data-file=$PROJECT_ROOT/tests/.coverage --source=$PROJECT_ROOT/nemo_rl"
LOGGING = "logger.tensorboard_enabled=true logger.wandb_enabled=false logger.monitor_gpus=true"
SMOKE_CHECKS = (
    'max(data["train/token_mult_prob_error"]) < 1.05',
    'min(data["train/probs_ratio_clamped_min"]) > 0.79',
    'max(data["train/probs_ratio_clamped_min"]) < 1.21',
    'min(data["train/probs_ratio_clamped_max"]) > 0.79',
    'max(data["train/probs_ratio_clamped_max"]) < 1.21',
)
LORA_CHECKS = ('max(data["train/reward"]) > 0.03', 'max(data["train/gen_kl_error"]) < 0.001')
MEGATRON_CONFIG = "examples/configs/grpo_math_1B_megatron.yaml"


def functional(entry: str, settings: str, checks: tuple[str, ...], config: str = MEGATRON_CONFIG) -> str:
    """One script of the common form."""
    quoted = " \\\n  ".join(f"'{check}'" for check in checks)
    return (
        f"{HEAD}{COVERAGE} \\\n  $PROJECT_ROOT/examples/{entry}.py --config $PROJECT_ROOT/{config} \\\n"
        f"  {settings} logger.log_dir=$LOG_DIR {LOGGING} \\\n  $@ \\\n  2>&1 | tee $RUN_LOG\n"
        "uv run tests/json_dump_tb_logs.py $LOG_DIR --output_path $JSON_METRICS\n"
        f"uv run tests/check_metrics.py $JSON_METRICS \\\n  {quoted}\n"
    )


DTENSOR = "policy.dtensor_cfg.enabled=true policy.megatron_cfg.enabled=false"
MCORE = "policy.dtensor_cfg.enabled=false policy.megatron_cfg.enabled=true"
SAVES = "checkpointing.enabled=true checkpointing.save_period=3 checkpointing.checkpoint_dir=/tmp/a-stand-in"
STOP = "checkpointing.checkpoint_must_save_by=0:0:0:1"


def _diamond() -> str:
    """Five runs: uninterrupted, then stopped after one step and resumed, with DTensor and with Megatron."""
    text = (
        f'{HEAD}prefix_output() {{\n  sed "s/^/$1/"\n}}\ntrain_cmd() {{\n{COVERAGE} \\\n'
        "  $PROJECT_ROOT/examples/run_sft.py policy.model_name=Qwen/Qwen3-0.6B sft.max_num_steps=2 \\\n"
        f"  {LOGGING} checkpointing.enabled=false checkpointing.save_period=1 $@\n}}\n"
    )
    for name, backend in (("baseline", DTENSOR), ("dtensor", DTENSOR), ("mcore", MCORE)):
        for count in ("2step",) if name == "baseline" else ("1step", "2step"):
            saves = f"checkpointing.enabled=true checkpointing.checkpoint_dir=$CKPT_DIR/{name} "
            settings = ("" if name == "baseline" else saves) + (f"{STOP} " if count == "1step" else "")
            log = "2step_baseline" if name == "baseline" else f"{name}_{count}"
            dump = "baseline" if name == "baseline" else f"{name}_{count}"
            text += (
                f"train_cmd logger.log_dir=$LOG_DIR/{name} {settings}{backend} $@ 2>&1 "
                f'| prefix_output "[{name} {count}] " | tee ${{RUN_LOG}}.{log}\n'
                f"uv run tests/json_dump_tb_logs.py $LOG_DIR/{name} --output_path $EXP_DIR/{dump}.json\n"
            )
    lines = (f"echo '✓ {key} {step} is equal'\n" for key in ("train/lr", "train/loss") for step in (1, 2))
    return text + "".join(lines)


def _replay_buffer() -> str:
    """Two runs without metric files: the second one goes on from the first one's replay buffer."""
    common = (
        f"{COVERAGE} $PROJECT_ROOT/examples/run_grpo.py policy.model_name=Qwen/Qwen3-0.6B "
        "policy.generation.colocated.enabled=false grpo.async_grpo.enabled=true "
        "logger.tensorboard_enabled=false logger.wandb_enabled=false checkpointing.enabled=true "
        "checkpointing.checkpoint_dir=$CKPT_DIR checkpointing.save_period=2"
    )
    runs = (
        f"{common} grpo.max_num_steps={steps} logger.log_dir=$LOG_DIR/{name} $@ "
        f"2>&1 | tee $EXP_DIR/{name}.log\n"
        for name, steps in (("run1", 2), ("run2", 4))
    )
    return HEAD + "".join(runs) + 'grep -q "ReplayBuffer restored:" $EXP_DIR/run2.log\n'


SCRIPTS = {
    "grpo_megatron_lora_async": functional(
        "run_grpo",
        "grpo.max_num_steps=3 policy.megatron_cfg.peft.enabled=true grpo.async_grpo.enabled=true "
        "policy.generation.colocated.enabled=false checkpointing.enabled=false",
        LORA_CHECKS,
    ),
    "sft_megatron_lora": functional(
        "run_sft",
        f"sft.max_num_steps=3 {MCORE} policy.megatron_cfg.peft.enabled=true {SAVES}",
        ('data["train/loss"]["3"] < 5.9',),
        "examples/configs/sft.yaml",
    ),
    "dpo_megatron_lora": functional(
        "run_dpo",
        f"dpo.max_num_steps=3 policy.megatron_cfg.peft.enabled=true {SAVES}",
        ('data["train/loss"]["3"] < 0.8',),
        "examples/configs/dpo.yaml",
    ),
    "grpo_async_replay_buffer_checkpoint": _replay_buffer(),
    "grpo_nccl_reshard_refit": functional(
        "run_grpo",
        "grpo.max_num_steps=2 policy.generation.colocated.enabled=false "
        "policy.generation.refit_transport=nccl_reshard checkpointing.enabled=false",
        SMOKE_CHECKS[:1],
    ),
    "grpo_megatron_eagle3_online": functional(
        "run_grpo",
        "grpo.max_num_steps=2 checkpointing.enabled=false",
        ('min(data["train/draft_loss"]) > 0',),
        "examples/configs/recipes/llm/grpo-qwen3-1.7b-1n4g-megatron-eagle3.yaml",
    ),
    "distillation_megatron": functional(
        "run_distillation",
        f"distillation.max_num_steps=3 policy.megatron_cfg.context_parallel_size=2 {SAVES}",
        ('data["train/loss"]["3"] < 1.0',),
        "examples/configs/distillation_math_megatron.yaml",
    ),
    "grpo_dp_single_controller": functional(
        "run_grpo_single_controller",
        "grpo.max_num_steps=2 data_plane.enabled=true data_plane.impl=transfer_queue "
        "data_plane.backend=simple data_plane.storage_capacity=1000000 data_plane.num_storage_units=2 "
        "data_plane.claim_meta_poll_interval_s=0.5 data_plane.global_segment_size=4294967296 "
        "data_plane.local_buffer_size=1073741824 checkpointing.enabled=false",
        ('max(data["train/gen_kl_error"]) < 0.002',),
        "examples/configs/grpo_math_1B_megatron_single_controller.yaml",
    ),
    "grpo_megatron": functional(
        "run_grpo",
        "policy.model_name=Qwen/Qwen2.5-0.5B grpo.max_num_steps=2 checkpointing.enabled=false",
        SMOKE_CHECKS,
    ),
    "grpo_megatron_lora": 'trap "rm -rf /tmp/grpo_megatron_lora_checkpoints" EXIT\n'
    + functional(
        "run_grpo",
        "grpo.max_num_steps=3 policy.megatron_cfg.peft.enabled=true policy.megatron_cfg.peft.dim=32 "
        "checkpointing.enabled=true checkpointing.save_period=3 "
        "checkpointing.checkpoint_dir=/tmp/grpo_megatron_lora_checkpoints",
        LORA_CHECKS,
    ),
    "grpo_megatron_generation": functional(
        "run_grpo",
        "grpo.max_num_steps=2 policy.generation.backend=megatron checkpointing.enabled=false",
        SMOKE_CHECKS[:1],
    ),
    "sft_resume_diamond": _diamond(),
}


def fake_nemo_rl(root: Path, python: str = sys.executable) -> Path:
    """Make the checkout at `root`, committed, with a `uv` in `root/bin` that runs everything by `python`."""
    make_fake_nemo_rl(root)
    for name, text in SCRIPTS.items():
        (root / "tests/functional" / f"{name}.sh").write_text(text)
    _add_keys(root)
    trainer = (TREE / "trainer.py").read_text()
    for entry, recipe in ENTRIES.items():
        (root / "examples" / f"{entry}.py").write_text(trainer.replace('RECIPE = ""', f'RECIPE = "{recipe}"'))
    shutil.copyfile(TREE / "check_r3_trace.py", root / "tools/check_r3_trace.py")
    for tool in ("check_metrics.py", "json_dump_tb_logs.py"):
        shutil.copyfile(TREE / tool, root / "tests" / tool)
    (root / "bin").mkdir()
    (root / "bin/uv").write_text(UV.format(python=python))
    (root / "bin/uv").chmod(0o755)
    (root / ".gitignore").write_text("tests/functional/*/\nresults/\n")
    _commit(root)
    return root


def fake_bridge(root: Path) -> Path:
    """Make a stand-in for Megatron-Bridge at `root`, committed: an empty package and one test."""
    (root / "src/megatron/bridge").mkdir(parents=True)
    (root / "src/megatron/bridge/__init__.py").touch()
    (root / "tests").mkdir()
    (root / "tests/test_it.py").write_text("def test_it() -> None:\n    assert True\n")
    _commit(root)
    return root


def _commit(root: Path) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    env = {"PATH": os.environ["PATH"], "HOME": str(root)}
    for argv in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "a stand-in"]):
        subprocess.run(["git", *argv], cwd=root, check=True, env=env)


def write_events(folder: Path, metrics: Mapping[str, Mapping[str, float]]) -> None:
    """A real TensorBoard event file with the values of a JSON dump."""
    pb = import_module("tensorboard.compat.proto.summary_pb2").Summary
    event = import_module("tensorboard.compat.proto.event_pb2").Event
    module = import_module("tensorboard.summary.writer.event_file_writer")
    writer = module.EventFileWriter(str(folder))
    for tag, series in metrics.items():
        for step, value in series.items():
            summary = pb(value=[pb.Value(tag=tag, simple_value=value)])
            writer.add_event(event(step=int(step), wall_time=1.0, summary=summary))
    writer.close()


def _add_keys(root: Path) -> None:
    """What the scripts set, in every recipe: an override of an absent key is refused."""
    keys = set(re.findall(r"(?<![\w.$/])([a-z]\w*(?:\.\w+)+)=", " ".join(SCRIPTS.values())))
    for path in root.glob("examples/**/*.yaml"):
        text = path.read_text()
        if not text.startswith("{"):
            continue  # the base of another recipe
        recipe: dict[str, Any] = json.loads(text)
        for key in sorted(keys):
            at = recipe
            *parents, last = key.split(".")
            for parent in parents:
                at = at.setdefault(parent, {})
            at.setdefault(last, None)
        path.write_text(json.dumps(recipe))
