"""A stand-in for NeMo-RL's entry points: prints and writes what they do, trains nothing.

Formats: tests/fixtures/nemo_rl_log_example.txt, and NeMo-RL at 7ea279ab. `FAKE_NEMO_RL_FAULT` breaks it.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from importlib import import_module
from pathlib import Path

ENTRY = Path(sys.argv[0]).stem
FAULT = os.environ.get("FAKE_NEMO_RL_FAULT", "")
SETTINGS = dict(arg.lstrip("+").partition("=")[::2] for arg in sys.argv[1:] if "=" in arg)
RECIPE = ""  # each copy names its own
CONFIG = sys.argv[sys.argv.index("--config") + 1] if "--config" in sys.argv else RECIPE
ALGORITHM = {"run_sft": "sft", "run_dpo": "dpo", "run_distillation": "distillation"}.get(ENTRY, "grpo")
MEGATRON = SETTINGS.get("policy.megatron_cfg.enabled", "true") == "true" and FAULT != "dtensor"
ACTOR = "MegatronPolicyWorker" if MEGATRON else "DTensorPolicyWorkerV2"
RULE = "=" * 25


def on(key: str, default: str = "false") -> bool:
    return SETTINGS.get(key, default) == "true"


def worker(text: str, rank: int = 0) -> None:
    print(f"\x1b[36m({ACTOR}[rank={rank}] pid={40112 + rank})\x1b[0m {text}", flush=True)


def main() -> int:
    print_config()
    if FAULT == "disk-full":
        print("OSError: [Errno 28] No space left on device: '/hf/hub/models--Qwen--Qwen2.5-0.5B/blobs/tmp1'")
        return 1
    if FAULT == "no-transfer-queue":
        print("ModuleNotFoundError: No module named 'transfer_queue'")
        return 1
    log_dir = next_log_dir(Path(SETTINGS["logger.log_dir"]))
    print(f"📊 Using log directory: {log_dir}")
    done = resumed_step()
    build(done)
    if FAULT == "provider-error":
        worker("KeyError: 'decoder.layers.0.mlp.router.weight' in Qwen2Bridge.mapping_registry")
        worker("Traceback (most recent call last):")
        return 1
    start_trainer()
    if done and on("grpo.async_grpo.enabled"):
        print("📦 Restoring replay buffer from checkpoint: step/replay_buffer.pt")
        print("ReplayBuffer restored: 4 trajectories, last target 3")
    return train(log_dir, done)


def print_config() -> None:
    if ENTRY == "run_distillation":
        print("Applied CLI overrides")  # the only entry point that prints no configuration
        return
    print(f"Loaded configuration from: {CONFIG}")
    shown = [] if FAULT == "dropped-overrides" else [arg for arg in sys.argv[1:] if "=" in arg]
    print(f"Overrides: {shown}")
    print("Applied CLI overrides")
    print("Final config:")
    megatron = megatron_config()
    colocated = on("policy.generation.colocated.enabled", "true")
    policy: dict[str, object] = {
        "model_name": SETTINGS.get("policy.model_name", "Qwen/Qwen2.5-0.5B"),
        "megatron_cfg": megatron,
        "generation": {
            "backend": SETTINGS.get("policy.generation.backend", "vllm"),
            "refit_transport": SETTINGS.get("policy.generation.refit_transport"),
            "colocated": {"enabled": colocated},
        },
    }
    if "-r3" in CONFIG and FAULT != "no-replay":
        policy["router_replay"] = {"enabled": True}
    plane = {"enabled": on("data_plane.enabled"), "impl": "transfer_queue",
             "backend": SETTINGS.get("data_plane.backend", "simple")}  # fmt: skip
    print(f"MasterConfig(policy={policy!r}, data_plane={plane!r})")


def megatron_config() -> dict[str, object]:
    sizes = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
             "expert_model_parallel_size")  # fmt: skip
    megatron: dict[str, object] = {"enabled": MEGATRON}
    megatron |= {key: int(SETTINGS.get(f"policy.megatron_cfg.{key}", "1")) for key in sizes}
    megatron["sequence_parallel"] = on("policy.megatron_cfg.sequence_parallel")
    megatron["peft"] = {"enabled": on("policy.megatron_cfg.peft.enabled")}
    return megatron


def next_log_dir(base: Path) -> Path:
    number = 1 + len(list(base.glob("exp_*")))
    folder = base / f"exp_{number:03d}"
    folder.mkdir(parents=True)
    return folder


def resumed_step() -> int:
    """The newest `step_N` of the checkpoint folder, whatever `checkpointing.enabled` says."""
    if FAULT == "finished":
        return steps()
    folder = Path(SETTINGS.get("checkpointing.checkpoint_dir", "results/grpo_megatron"))
    return max((int(path.name[5:]) for path in folder.glob("step_*")), default=0)


def build(done: int) -> None:
    if not on("policy.generation.colocated.enabled", "true"):
        print("  ✓ Ray train cluster initialized with 1 nodes with 1 GPUs per node")
        print("  ✓ Ray inference cluster initialized with 1 nodes with 1 GPUs per node")
    backend = SETTINGS.get("policy.generation.backend", "vllm")
    if MEGATRON:
        build_megatron(done)
    else:
        worker("Setting up model")
    shown = "vLLM" if backend == "vllm" else backend
    print(f"  ✓ Using {shown} backend for generation with {SETTINGS.get('policy.model_name', 'Qwen')}")
    if "eagle" in CONFIG and FAULT == "no-refit":
        print("UserWarning: Speculative decoding is enabled without draft refit sync. Setting vllm_cfg")
    print("                  SETUP COMPLETE")


def build_megatron(done: int) -> None:
    cache = os.environ.get("NRL_MEGATRON_CHECKPOINT_DIR") or "/hf/nemo_rl"
    for rank in (0, 1):
        worker(f"Using default megatron checkpoint dir: {cache}", rank)
    converted = Path(cache) / SETTINGS.get("policy.model_name", "Qwen/Qwen2.5-0.5B") / "iter_0000000"
    if converted.is_dir() or FAULT == "import-skipped":
        worker(f"Checkpoint already exists at {converted}. Skipping import.")
    else:
        converted.mkdir(parents=True)
    worker("time to initialize megatron (seconds): 3.118")
    if FAULT == "wrong-bridge":
        worker("/opt/nemo-rl/3rdparty/Megatron-Bridge-workspace/Megatron-Bridge/src/megatron/bridge/models/"
               "conversion/auto_bridge.py:61: UserWarning: a stand-in's warning")  # fmt: skip
    if on("policy.megatron_cfg.peft.enabled"):
        worker("Applying PEFT transformation...")
        worker("PEFT Statistics:")
        worker(f"  Trainable parameters: {'0' if FAULT == 'no-adapter' else '8,798,208'}")
        worker("  Trainable percentage: 1.75%")
    worker("Model, optimizer, and learning rate scheduler built")
    if done:
        folder = SETTINGS.get("checkpointing.checkpoint_dir", "results/grpo_megatron")
        worker(f"  successfully loaded checkpoint from {folder}/step_{done}/policy/weights"
               " [ t 1/1, p 1/1 ] at iteration 0")  # fmt: skip
    worker("Checkpoint loaded")


def start_trainer() -> None:
    if ENTRY == "run_grpo_single_controller":
        print("🚀 Launching SingleControllerActor")
    elif ALGORITHM == "grpo" and on("grpo.async_grpo.enabled"):
        print("🚀 Running async GRPO training")
    elif ALGORITHM == "grpo":
        plane = " (TransferQueue)" if on("data_plane.enabled") and FAULT != "no-plane" else " (legacy)"
        print(f"🚀 Running synchronous GRPO training{'' if ENTRY == 'run_vlm_grpo' else plane}")


def steps() -> int:
    return int(SETTINGS.get(f"{ALGORITHM}.max_num_steps", "2"))


def train(log_dir: Path, done: int) -> int:
    last = 0 if FAULT == "no-steps" else steps()
    with (
        Events(log_dir) if on("logger.tensorboard_enabled") and FAULT != "no-metrics" else Nothing() as events
    ):
        for step in range(done + 1, last + 1):
            if ENTRY != "run_grpo_single_controller":
                print(f"\n{RULE} Step {step}/{steps()} {RULE}")
            if FAULT == "crash" and step == last:
                worker("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a "
                       "total capacity of 79.11 GiB of which 1.02 GiB is free.")  # fmt: skip
                return 1
            values = metrics(step, last)
            events.write(step, values)
            if ALGORITHM == "grpo" and ENTRY != "run_grpo_single_controller":
                path = log_dir / f"train_data_step{step}.jsonl"
                path.write_text(json.dumps({"content": ["a", "b"], "rewards": [0.0, 1.0]}) + "\n")
                print(f"Logged data to {path}")
            print(f"\n📊 Training Results:\n  • Loss: {values['train/loss']:.4f}")
            if "eagle" in CONFIG:
                print(f"  • Draft Loss: {values['train/draft_loss']:.4f}")
            print("\n⏱️  Timing:\n  • Total step time: 6.00s")
            if ENTRY == "run_grpo_single_controller":
                print(f"train step {step}/{steps()}  trainer_v={step}  lag=0  ")
            stop = "checkpointing.checkpoint_must_save_by" in SETTINGS
            save(step, step == last or stop)
            if stop:
                print("Timeout has been reached, stopping training early")
                return 0
    print("Max number of steps has been reached, stopping training early")
    return 0


def metrics(step: int, last: int) -> dict[str, float]:
    broken = math.nan if FAULT == "nan" and step == last else 0.0
    error = 1.31 if FAULT == "high-error" else 1.01388
    return {
        "train/loss": 0.5 / step + broken,
        "train/reward": 0.05 + (0.0 if FAULT == "flat" else 0.02 * step),
        "train/grad_norm": 0.0 if FAULT == "zero-gradient" else 2.6 / step + broken,
        "train/token_mult_prob_error": error + broken,
        "train/gen_kl_error": 0.0004,
        "train/probs_ratio_clamped_min": 0.98244,
        "train/probs_ratio_clamped_max": 1.0187,
        "train/num_masked_seqs_by_logprob_error": 0.0,
        "train/max_seq_mult_prob_error": 1.02,
        "train/draft_loss": 1.7 / step,
        "train/lr": 5e-7 * step,
        "timing/train/total_step_time": 6.0,
    }


def save(step: int, final: bool) -> None:
    period = int(SETTINGS.get("checkpointing.save_period", "10"))
    if not on("checkpointing.enabled") or not (final or step % period == 0):
        return
    folder = Path(SETTINGS["checkpointing.checkpoint_dir"])
    torn, whole = folder / f"tmp_step_{step}", folder / f"step_{step}"
    weights = torn / "policy/weights/iter_0000000"
    weights.mkdir(parents=True)
    (weights / "__0_0.distcp").write_text("a stand-in's weights")
    print(f"Saving checkpoint for step {step}...")
    worker(f"saving checkpoint at iteration       0 to {torn}/policy/weights in torch_dist format")
    worker(f"  successfully saved checkpoint from iteration       0 to {torn}/policy/weights"
           " [ t 1/1, p 1/1 ]")  # fmt: skip
    (torn / "training_info.json").write_text(json.dumps({"current_step": step}))
    (torn / "config.yaml").write_text(json.dumps({"policy": {"megatron_cfg": megatron_config()}}))
    if FAULT != "unfinished-save":
        torn.rename(whole)


class Nothing:
    """Where TensorBoard is off."""

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def write(self, step: int, values: dict[str, float]) -> None:
        return None


class Events(Nothing):
    """A real TensorBoard event file, by TensorBoard's own writer."""

    def __init__(self, log_dir: Path) -> None:
        module = import_module("tensorboard.summary.writer.event_file_writer")
        self.writer = module.EventFileWriter(str(log_dir / "tensorboard"))

    def __exit__(self, *_: object) -> None:
        self.writer.close()

    def write(self, step: int, values: dict[str, float]) -> None:
        summary = import_module("tensorboard.compat.proto.summary_pb2").Summary
        event = import_module("tensorboard.compat.proto.event_pb2").Event
        rows = [summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self.writer.add_event(event(step=step, wall_time=time.time(), summary=summary(value=rows)))


if __name__ == "__main__":
    sys.exit(main())
