"""A stand-in for verl's trainer: it trains nothing and prints and writes what the real one would.

Formats are those of verl 0.7.0 to 0.10.0.dev (both trainers, both checkpoint layouts). `FAKE_VERL_FAULT`
names what goes wrong, `FAKE_VERL_RAY=1` prints from real Ray actors instead of imitating their prefix.
"""

import json
import os
import pprint
import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSION = (ROOT / "verl/version/version").read_text().strip()
LEGACY = VERSION.startswith(("0.7", "0.8"))
LAYOUT = 1 if LEGACY else 2
FAULT = os.environ.get("FAKE_VERL_FAULT", "")
BRIDGE = "/src/Megatron-Bridge/src/megatron/bridge"
CUSTOM = {"path": None, "name": None}
RUNNER = "TaskRunner" if LEGACY else "TaskRunnerV1"


# -- configuration -----------------------------------------------------------------------------------


def base() -> dict:
    """Keys of the real configuration that the script sets, with other defaults."""
    sizes = {
        f"{name}_parallel_size": 1
        for name in ("tensor_model", "pipeline_model", "context", "expert_model", "expert_tensor")
    }
    sizes["virtual_pipeline_model_parallel_size"] = None
    offload = {"param_offload": False, "grad_offload": False, "optimizer_offload": False}
    switches = {"use_mbridge": True, "vanilla_mbridge": True}
    if not VERSION.startswith("0.7"):
        switches["use_megatron_fsdp"] = False
    if VERSION != "0.7.0":
        switches["router_replay"] = {"mode": "disabled"}
    if not VERSION.startswith("0.7"):
        switches["qat"] = {"enable": False}
    megatron = {**sizes, **offload, **switches, "override_transformer_config": {"attention_backend": "flash"}}
    reward = {"enable": False, "model_path": None}
    family = (
        {"reward_model": {**reward, "model": {"path": None}}}
        if VERSION == "0.7.0"
        else {"reward": {"reward_model": reward, "num_workers": 8, "custom_reward_function": dict(CUSTOM)}}
    )
    if not LEGACY:  # the V1 trainer
        storage = {"num_data_storage_units": 8}
        family["transfer_queue"] = {"enable": False, "backend": {"SimpleStorage": storage}}
    return {
        "actor_rollout_ref": {
            "actor": {
                "megatron": copied(megatron),
                "strategy": "megatron",
                "ppo_mini_batch_size": 8,
                "optim": {"lr": 1e-06},
            },
            "model": {
                "path": None,
                "lora": {"rank": 0, "alpha": 32},
                "mtp": {"enable": False, "enable_train": False},
            },
            "ref": {"megatron": copied(megatron), "strategy": "megatron"},
            "rollout": {
                "name": "vllm",
                "n": 4,
                "tensor_model_parallel_size": 2,
                "enforce_eager": False,
                "gpu_memory_utilization": 0.5,
                "agent": {"num_workers": 8},
                "enable_rollout_routing_replay": False,
            },
        },
        "algorithm": {"adv_estimator": "gae"},
        "critic": {"megatron": copied(megatron), "strategy": "megatron"},
        "custom_reward_function": dict(CUSTOM),
        "data": {
            "train_files": None,
            "val_files": None,
            "train_batch_size": 16,
            "max_prompt_length": 512,
            "max_response_length": 512,
            "dataloader_num_workers": 8,
            "seed": None,
        },
        "global_profiler": {"steps": None},
        "ray_kwargs": {"ray_init": {"num_cpus": None, "runtime_env": {"env_vars": {}}}},
        **family,
        "trainer": {
            **({} if LEGACY else {"use_v1": True}),
            "logger": ["console"],
            "nnodes": 1,
            "n_gpus_per_node": 8,
            "total_epochs": 1,
            "total_training_steps": None,
            "resume_mode": "auto",
            "save_freq": -1,
            "test_freq": -1,
            "val_before_train": True,
            "default_local_dir": "checkpoints",
            "project_name": "verl-test",
            "experiment_name": "gsm8k",
        },
    }


def copied(data: dict) -> dict:
    return json.loads(json.dumps(data))


def parsed(text: str):
    if text in ("null", "None"):
        return None
    if text in ("True", "False", "true", "false"):
        return text.lower() == "true"
    if text.startswith("[") and text.endswith("]"):
        return [parsed(part.strip("'\" ")) for part in text[1:-1].split(",")]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def configuration(words: list) -> dict:
    """Hydra's rules: a plain key must be there, a `+` one must not, `++` is both."""
    config = base()
    for word in words:
        key, _, value = word.partition("=")
        name = key.lstrip("+")
        *parents, last = name.split(".")
        at, force = config, key.startswith("+")
        for parent in parents:
            if parent not in at and not force:
                sys.exit(
                    f"Could not override '{name}'.\nTo append to your config use +{name}={value}\n"
                    f"Key '{parent}' is not in struct\n    full_key: {parent}\n    object_type=dict\n\n"
                    "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace."
                )
            at = at.setdefault(parent, {})
        at[last] = parsed(value)
    return config


# -- output ------------------------------------------------------------------------------------------


class Imitated:
    """Ray's prefix and colour, without Ray."""

    def say(self, actor: str, *lines: str) -> None:
        pid = 41207 if actor == RUNNER else 41988
        for line in "\n".join(lines).split("\n"):
            print(f"\x1b[36m({actor} pid={pid})\x1b[0m {line}", flush=True)

    def close(self) -> None:
        pass


class FromRay:
    """Real actors, so that Ray forwards what they print."""

    def __init__(self, config: dict) -> None:
        import ray

        class Actor:
            def say(self, lines: tuple) -> None:
                print("\n".join(lines), flush=True)

        env = {
            key: str(value)
            for key, value in config["ray_kwargs"]["ray_init"]["runtime_env"]["env_vars"].items()
        }
        ray.init(runtime_env={"env_vars": env})
        self._ray = ray
        self._actors = {
            name: ray.remote(num_cpus=0)(type(name, (Actor,), {})).remote() for name in (RUNNER, "WorkerDict")
        }

    def say(self, actor: str, *lines: str) -> None:
        self._ray.get(self._actors[actor].say.remote(lines))

    def close(self) -> None:
        time.sleep(1.0)  # for Ray's log monitor
        self._ray.shutdown()


def info(text: str) -> str:
    return text if LEGACY else f"INFO:2026-08-22 14:05:12,533:{text}"


def die(kind: str, text: str, *frames: str) -> None:
    """As Ray shows an error of a remote task in the driver."""
    print("Error executing job with overrides: ['algorithm.adv_estimator=gae']")
    print("Traceback (most recent call last):")
    print(f'  File "{ROOT}/verl/trainer/main_ppo.py", line 195, in main')
    print(f"ray.exceptions.RayTaskError({kind}): ray::{RUNNER}.run() (pid=41207, ip=10.0.0.11)")
    for frame in frames:
        print(f"  {frame}")
    print(f"{kind}: {text}\n")
    print("Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.", flush=True)
    sys.exit(1)


# -- faults before and while the model is built ------------------------------------------------------


def fail_before(config: dict) -> None:
    wanted = config["trainer"]["nnodes"] * config["trainer"]["n_gpus_per_node"]
    if FAULT == "gpus":
        die("ValueError", f"Total available GPUs {wanted - 1}.0 is less than total desired GPUs {wanted}")
    if FAULT == "rocr" or os.environ.get("ROCR_VISIBLE_DEVICES"):
        die(
            "ValueError",
            "Please don't set ROCR_VISIBLE_DEVICES when HIP/CUDA_VISIBLE_DEVICES is set.",
            f'File "{ROOT}/verl/single_controller/base/worker.py", line 267, in _setup_env',
        )
    if FAULT == "disk":
        die("OSError", "[Errno 28] No space left on device")
    if FAULT == "no-bridge":
        print("(WorkerDict pid=41990) Megatron-Bridge package not found. Please install Megatron-Bridge")
        die("ModuleNotFoundError", "No module named 'megatron.bridge'")
    if FAULT == "no-transfer-queue":
        die("ModuleNotFoundError", "No module named 'transfer_queue'")


def fail_in_bridge(out) -> None:
    if FAULT == "provider":
        die(
            "AssertionError",
            "num_query_groups must be divisible by tensor_model_parallel_size",
            f'File "{ROOT}/verl/workers/engine/megatron/transformer_impl.py", line 402, in _build_tf_config',
            f'File "{BRIDGE}/models/model_provider.py", line 41, in finalize',
        )
    if FAULT == "mapping":
        die(
            "KeyError",
            "'decoder.layers.0.self_attention.linear_qkv.weight'",
            f'File "{BRIDGE}/models/conversion/model_bridge.py", line 9, in load_hf_weights',
        )


def build(out, config: dict) -> None:
    """What workers print while the Bridge builds critic and actor."""
    rank = config["actor_rollout_ref"]["model"]["lora"]["rank"]
    fail_in_bridge(out)
    experts = os.environ.get("FAKE_VERL_EXPERTS", "None")
    for role in ("critic", "actor"):
        out.say("WorkerDict", f"TF config: TransformerConfig(num_layers=2, num_moe_experts={experts}, tp=1)")
        if rank:
            count = 0 if FAULT == "frozen" else 2523136
            share = 100 * count / 598312960
            out.say(
                "WorkerDict",
                f"Enabling LORA with rank={rank}, alpha={rank}, dropout=0.0",
                "",
                "=" * 60,
                "PEFT Adapter Information:",
                "  Total parameters:     598,312,960",
                f"  Adapter parameters:   {count:,}",
                f"  Trainable percentage: {share:.2f}%",
                "=" * 60,
            )
        out.say("WorkerDict", "actor_module: 1" if VERSION == "0.7.0" and role == "actor" else "module: 1")
        sharded = config["actor_rollout_ref"]["actor"]["megatron"].get("use_megatron_fsdp")
        wrapper = "FullyShardedDataParallel" if sharded else "DistributedDataParallel"
        out.say("WorkerDict", f"{wrapper} contains 598.31M parameters")
    if FAULT == "rollout":
        print("(vLLMHttpServer pid=7) RuntimeError: Engine core initialization failed. See root cause above.")
        die("RuntimeError", "Engine core initialization failed. See root cause above.")


# -- training ----------------------------------------------------------------------------------------


def metrics(step: int, total: int, source: random.Random) -> dict:
    reward = 0.2 + 0.5 * step / max(total, 1) + source.gauss(0, 0.02)
    grad, kl = 0.4 + source.random() / 10, 2e-5 * (step - 1) + 1e-7
    changes = {
        "nan": {"actor/grad_norm": float("nan")},
        "inf": {"actor/pg_loss": float("inf")} if step == total else {},
        "zero-grad": {"actor/grad_norm": 0.0},
        "zero-kl": {"actor/kl_loss": 0.0},
        "flat": {"critic/rewards/mean": 0.2 + source.gauss(0, 0.02)},
        "constant": {"critic/rewards/mean": 0.25},
    }
    return {
        "global_seqlen/mean": 3550.375,
        "actor/entropy": 0.41,
        "actor/pg_loss": 0.0017,
        "actor/kl_loss": kl,
        "actor/kl_coef": 0.001,
        "actor/ppo_kl": 6e-05,
        "actor/grad_norm": grad,
        "actor/lr": 1e-06,
        "critic/vf_loss": 0.62,
        "critic/grad_norm": 3.9,
        "critic/vf_explained_var": float("nan"),
        "critic/score/mean": reward,
        "critic/rewards/mean": reward,
        "response_length/clip_ratio": 0.1,
        "training/rollout_probs_diff_mean": 0.0015,
        **changes.get(FAULT, {}),
        "training/global_step": step,
        "training/epoch": 0,
        "perf/time_per_step": 1.0,
        "perf/throughput": 900.0,
    }


def value(number) -> str:
    if isinstance(number, float) and LEGACY:
        return f"np.float64({number})"
    return str(number)


class FileLogger:
    """One JSON object a line; NaN and infinity become null, the file is truncated at the start."""

    def __init__(self, config: dict) -> None:
        trainer = config["trainer"]
        env = {**os.environ, **config["ray_kwargs"]["ray_init"]["runtime_env"]["env_vars"]}
        path = (
            env.get("VERL_FILE_LOGGER_PATH")
            or f"{trainer['project_name']}/{trainer['experiment_name']}.jsonl"
        )
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self.path = Path(path) if "file" in trainer["logger"] else None
        if self.path:
            self.path.write_bytes(b"")

    def log(self, step: int, data: dict) -> None:
        finite = {key: v if v == v and abs(v) != float("inf") else None for key, v in data.items()}
        if self.path:
            with self.path.open("ab") as file:
                file.write(json.dumps({"step": step, "data": finite}).encode() + b"\n")


def log(out, logger: FileLogger, step: int, data: dict) -> None:
    out.say(RUNNER, f"step:{step} - " + " - ".join(f"{key}:{value(v)}" for key, v in data.items()))
    logger.log(step, data)


def load(out, config: dict, steps: int) -> int:
    """The step that training goes on from."""
    root = Path(config["trainer"]["default_local_dir"])
    tracker = root / "latest_checkpointed_iteration.txt"
    if config["trainer"]["resume_mode"] == "disable":
        return 0
    if not tracker.exists() or FAULT == "scratch":
        out.say(RUNNER, f"Checkpoint tracker file does not exist: {tracker}", info("Training from scratch"))
        return 0
    done = int(tracker.read_text())
    folder = root / f"global_step_{done}"
    out.say(RUNNER, f"Found checkpoint: %s {folder}")
    if LEGACY:
        out.say(RUNNER, f"Load from checkpoint folder: {folder}", f"Setting global step to {done}")
        out.say(RUNNER, f"Resuming from {folder}")
    else:
        out.say(RUNNER, info(f"Resuming from {folder}, setting global step to {done}"))
    lora = config["actor_rollout_ref"]["model"]["lora"]["rank"]
    for role in ("actor", "critic"):
        model = f"{folder}/{role}/" + ("model/dist_ckpt" if LAYOUT == 2 else "dist_ckpt")
        what = "PEFT adapter checkpoint" if not VERSION.startswith("0.7") else "adapter checkpoint"
        optimizer = f"{folder}/{role}/" + ("optimizer/dist_ckpt" if LAYOUT == 2 else "dist_ckpt")
        if FAULT == "no-adapter":
            out.say("WorkerDict", f"PEFT config is set but no adapter checkpoint found at {model}")
        elif lora:
            out.say("WorkerDict", info(f"[Rank 0] Loaded {what} from {model}"))
        else:
            out.say("WorkerDict", info(f"[Rank 0] Loaded HF model checkpoint from {model} with bridge"))
        if FAULT != "no-optimizer" or role == "actor":
            out.say("WorkerDict", info(f"[Rank 0] Loaded optimizer checkpoint from {optimizer}"))
        out.say("WorkerDict", info(f"[Rank 0] Loaded RNG states from {folder}/{role}/dist_ckpt"))
    return steps if FAULT == "finished" else done


def save(out, config: dict, step: int) -> None:
    root = Path(config["trainer"]["default_local_dir"])
    folder = root / f"global_step_{step}"
    if FAULT == "modelopt":
        die("ModuleNotFoundError", "No module named 'modelopt'")
    out.say(
        RUNNER, f"local_global_step_folder: {folder}" if LEGACY else info(f"Saving checkpoint to {folder}")
    )
    parts = (
        ("dist_ckpt", "huggingface")
        if LAYOUT == 1
        else ("model/dist_ckpt", "optimizer/dist_ckpt", "extra/dist_ckpt")
    )
    for role in ("actor", "critic"):
        for part in parts:
            (folder / role / part).mkdir(parents=True, exist_ok=True)
            (folder / role / part / "__0_0.distcp").write_bytes(b"x" * 64)
        out.say("WorkerDict", info(f"[Rank 0] Checkpoint save completed for {folder}/{role}"))
        if LAYOUT == 2 and not (FAULT == "no-manifest" and role == "critic"):
            (folder / role / "ckpt_contents.json").write_text(json.dumps({"schema_version": 2, "role": role}))
            out.say("WorkerDict", info(f"[Rank 0] Wrote checkpoint contents manifest to {folder}/{role}"))
    (folder / "data.pt").write_bytes(b"x")
    if FAULT != "no-tracker":
        (root / "latest_checkpointed_iteration.txt").write_text(str(step))


def rows(path: str) -> int:
    if not Path(path).is_file():
        die("FileNotFoundError", f"Unable to find '{path}'")
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(path).metadata.num_rows


def fit(out, config: dict, logger: FileLogger, count: int) -> None:
    trainer, batch = config["trainer"], config["data"]["train_batch_size"]
    per_epoch = count // batch
    if per_epoch == 0:
        if LEGACY:
            die("AssertionError", "Train dataloader is empty!")
        die(
            "ZeroDivisionError",
            "integer modulo by zero",
            f'File "{ROOT}/verl/trainer/ppo/v1/trainer_base.py", line 1, in fit',
        )
    total = trainer["total_training_steps"] or per_epoch * trainer["total_epochs"]
    done = load(out, config, total)
    source = random.Random(done)
    val = {"val-core/openai/gsm8k/acc/mean@1": 0.32, "val-aux/openai/gsm8k/reward/mean@1": 0.32}
    if trainer["val_before_train"] or FAULT == "validation-only":
        out.say(
            RUNNER,
            "(\"Initial validation metrics: {'val-core/openai/gsm8k/acc/mean@1': \"",
            " 'np.float64(0.32)}')",
        )
        log(out, logger, 1 if FAULT == "validation-only" else done, val)
    last = min(total, per_epoch * trainer["total_epochs"])
    if FAULT == "early-end":
        last = max(done, total - 1)
    for step in range(done + 1, last + 1):
        if FAULT in ("no-step", "validation-only"):
            break
        data = metrics(step, total, source)
        if trainer["test_freq"] > 0 and (step % trainer["test_freq"] == 0 or step == total):
            data.update(val)
        if trainer["save_freq"] > 0 and (step % trainer["save_freq"] == 0 or step == total):
            save(out, config, step)
        log(out, logger, step, data)
        if FAULT == "oom" and step == last:
            die(
                "torch.OutOfMemoryError",
                "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity",
            )
    if FAULT != "early-end":
        out.say(RUNNER, f"Training Progress: 100%|##########| {total}/{total} [00:01<00:00,  1.00s/it]")
        out.say(RUNNER, "'Final validation metrics: None'")


def main(argv: list) -> None:
    config = configuration([word for word in argv if not word.startswith("--")])
    megatron = config["actor_rollout_ref"]["actor"]["megatron"]
    if FAULT == "vanilla":
        megatron["vanilla_mbridge"] = True
    if FAULT == "sizes":
        megatron["tensor_model_parallel_size"] = megatron["expert_model_parallel_size"] = 1
    if FAULT == "ddp":
        megatron["use_megatron_fsdp"] = False
    if FAULT == "no-replay":
        megatron["router_replay"]["mode"] = "disabled"
    if FAULT == "fsdp-engine":
        config["actor_rollout_ref"]["actor"]["strategy"] = "fsdp"
    print("[validate_config] All configuration checks passed successfully!")
    print(f"ray init kwargs: {config['ray_kwargs']['ray_init']}", flush=True)
    fail_before(config)
    out = FromRay(config) if os.environ.get("FAKE_VERL_RAY") == "1" else Imitated()
    if FAULT != "no-config":
        out.say(RUNNER, pprint.pformat(config))
    count = rows(config["data"]["train_files"])
    out.say(RUNNER, f"dataset len: {count}", f"filter dataset len: {count}")
    out.say(RUNNER, info(f"Total training steps: {config['trainer']['total_training_steps']}"))
    build(out, config)
    out.say(RUNNER, info("all initialize finished, ready to fit"))
    fit(out, config, FileLogger(config), count)
    out.close()
    print("/usr/lib/python3.12/multiprocessing/resource_tracker.py:279: UserWarning: resource_tracker: There"
          " appear to be 1 leaked semaphore objects to clean up at shutdown", file=sys.stderr)  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
