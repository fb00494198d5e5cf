"""Environment and overrides for SkyRL's entrypoint, by spec and coverage level. Pure.

Source: SkyRL at a9564572 (2026-08-21), `skyrl/train/config/config.py` and `skyrl/train/utils/utils.py`, and
the recipe of pull request 1816 for Nemotron-3-Ultra-550B.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Literal

from jobspec.frameworks.base import Context
from jobspec.frameworks.shared import schedule as when
from jobspec.frameworks.shared import trackers
from jobspec.frameworks.shared.dotted_keys import flat
from jobspec.frameworks.shared.trackers import WANDB, beside, tracker_names
from jobspec.frameworks.skyrl import dummy_trainers
from jobspec.megatron.shape import OptimizerShape, Recompute, RolloutShape, TrainShape

MEGATRON = "trainer.policy.megatron_config"
REFERENCE = "trainer.ref.megatron_config"
ENGINE = "generator.inference_engine"
LOCAL, URLS = f"{ENGINE}.run_engines_locally", f"{ENGINE}.external_server_urls"
ADDRESSES = (URLS, f"{ENGINE}.external_proxy_url")  # of engines that SkyRL does not start
STRATEGY = "trainer.strategy"
BACKENDS = ("megatron", "fsdp")
ULYSSES = "trainer.policy.sequence_parallel_size"
TRANSFORMER = f"{MEGATRON}.transformer_config_kwargs"
OPTIMIZER = f"{MEGATRON}.optimizer_config_kwargs"
FUSION = f"{TRANSFORMER}.gradient_accumulation_fusion"
PROMETHEUS = f"{ENGINE}.enable_ray_prometheus_stats"
# Source: skyrl/train/utils/tracking.py, `supported_backends`.
LOGGER, TENSORBOARD = "trainer.logger", "tensorboard"
TRACKERS = (TENSORBOARD, WANDB, "mlflow", "swanlab", "console")
DEFAULT_STEPS = {"smoke": 2, "checkpoint": 2, "learning": 50}
# SkyRL's own defaults, where a rule needs a value that the spec does not give.
DEFAULTS: Mapping[str, Any] = {
    STRATEGY: "fsdp",
    ULYSSES: 1,
    "trainer.flash_attn": True,
    "trainer.train_batch_size": 1024,
    "trainer.policy_mini_batch_size": 256,
    "trainer.micro_train_batch_size_per_gpu": 1,
    "trainer.max_tokens_per_microbatch": -1,
    "trainer.max_prompt_length": 512,
    "trainer.remove_microbatch_padding": True,
    "trainer.algorithm.use_kl_loss": True,
    "trainer.algorithm.use_kl_in_reward": False,
    "trainer.placement.colocate_all": True,
    "trainer.policy.model.lora.rank": 0,
    "trainer.fused_lm_head_logprob": False,
    "trainer.logprobs_chunk_size": 1024,
    f"{MEGATRON}.ddp_config.grad_reduce_in_fp32": True,
    "environment.env_class": "gsm8k",
    "generator.n_samples_per_prompt": 5,
    "generator.sampling_params.max_generate_length": 1024,
    f"{ENGINE}.num_engines": 1,
    f"{ENGINE}.tensor_parallel_size": 1,
    f"{ENGINE}.pipeline_parallel_size": 1,
    f"{ENGINE}.data_parallel_size": 1,
    f"{ENGINE}.expert_parallel_size": 1,
    f"{ENGINE}.gpu_memory_utilization": 0.8,
    f"{ENGINE}.distributed_executor_backend": "ray",
    f"{ENGINE}.weight_sync_backend": "nccl",
    LOCAL: True,
    f"{ENGINE}.use_expandable_segments": False,
    FUSION: False,
    PROMETHEUS: True,
}
# jobspec sets these from the spec's own keys: the judge trusts those, and an override would contradict them.
OWNED: Mapping[str, str] = {
    "trainer.policy.model.path": "model",
    "trainer.placement.policy_num_nodes": "resources.nodes",
    "trainer.placement.policy_num_gpus_per_node": "resources.gpus_per_node",
    "trainer.max_training_steps": "train.steps",
    dummy_trainers.STEPS: "train.steps",
    dummy_trainers.RESULTS_FILE: "artifacts",
    "trainer.seed": "train.seed",
    "trainer.ckpt_path": "checkpoint.dir",
    "trainer.ckpt_interval": "checkpoint.every",
    "trainer.max_ckpts_to_keep": "checkpoint.keep",
    "trainer.resume_mode": "checkpoint.resume",
    "trainer.export_path": "artifacts",
    "trainer.log_path": "artifacts",
    "data.train_data": "data",
    "data.val_data": "data",
    f"{MEGATRON}.tensor_model_parallel_size": "train.parallel.tp",
    f"{MEGATRON}.pipeline_model_parallel_size": "train.parallel.pp",
    f"{MEGATRON}.context_parallel_size": "train.parallel.cp",
    f"{MEGATRON}.expert_model_parallel_size": "train.parallel.ep",
    f"{MEGATRON}.expert_tensor_parallel_size": "train.parallel.etp",
    f"{ENGINE}.num_engines": "train.rollout.engines",
    f"{ENGINE}.tensor_parallel_size": "train.rollout.tp",
    f"{ENGINE}.pipeline_parallel_size": "train.rollout.pp",
    f"{ENGINE}.expert_parallel_size": "train.rollout.ep",
}


def schedule(context: Context) -> when.Schedule:
    return when.schedule(context, DEFAULT_STEPS)


def setting(context: Context, key: str) -> Any:
    """The value that SkyRL uses for `key`: the spec's override, jobspec's value, or SkyRL's own default."""
    values = {**DEFAULTS, **sizes(context), **flat(context.spec.train.overrides)}
    return values.get(key)


def strategy(context: Context) -> str:
    """The training backend: `megatron`, unless the spec overrides it (`fsdp2` is an old name of `fsdp`)."""
    named = str(flat(context.spec.train.overrides).get(STRATEGY, "megatron"))
    return "fsdp" if named == "fsdp2" else named


def data_parallel(context: Context) -> int:
    """Ranks that each train on samples of their own; 0 where the sizes do not divide."""
    if strategy(context) == "megatron":
        return shape(context).dp
    gpus, ranks = trainer_gpus(context), int(setting(context, ULYSSES))
    return gpus // ranks if ranks > 0 and gpus % ranks == 0 else 0


def trainer_gpus(context: Context) -> int:
    """GPUs of the trainer: all of the job's, unless the spec gives a separate trainer fewer."""
    return math.prod(
        int(setting(context, f"trainer.placement.policy_num_{name}")) for name in ("nodes", "gpus_per_node")
    )


def has_remote_engines(context: Context) -> bool:
    """Whether servers that SkyRL does not start generate."""
    return not setting(context, LOCAL) or any(setting(context, key) is not None for key in ADDRESSES)


def engine_gpus(context: Context) -> int:
    """GPUs of all engines together."""
    degrees = ("num_engines", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
    return math.prod(int(setting(context, f"{ENGINE}.{name}")) for name in degrees)


def sizes(context: Context) -> dict[str, Any]:
    """Settings of sizes and placement that come from the spec's own keys."""
    spec, parallel, rollout = context.spec, context.spec.train.parallel, context.spec.train.rollout
    megatron = strategy(context) == "megatron"
    values: dict[str, Any] = {
        STRATEGY: strategy(context),
        "trainer.placement.policy_num_nodes": spec.resources.nodes,
        "trainer.placement.policy_num_gpus_per_node": context.gpus_per_node,
    }
    degrees = {
        "tensor_model_parallel_size": parallel.tp,
        "pipeline_model_parallel_size": parallel.pp,
        "context_parallel_size": parallel.cp,
        "expert_model_parallel_size": parallel.ep,
        "expert_tensor_parallel_size": parallel.etp,
    }
    if megatron:
        values |= {f"{MEGATRON}.{name}": value for name, value in degrees.items()}
    overrides = {**DEFAULTS, **flat(spec.train.overrides)}
    if overrides["trainer.algorithm.use_kl_loss"] or overrides["trainer.algorithm.use_kl_in_reward"]:
        # The reference model is laid out by its own keys, which default to 1, and lies on the trainer's GPUs.
        values |= {f"{REFERENCE}.{name}": value for name, value in degrees.items() if megatron}
        for name in ("nodes", "gpus_per_node"):
            policy = f"trainer.placement.policy_num_{name}"
            values[f"trainer.placement.ref_num_{name}"] = overrides.get(policy, values[policy])
    named = {
        "num_engines": rollout.engines,
        "tensor_parallel_size": rollout.tp,
        "pipeline_parallel_size": rollout.pp,
        "expert_parallel_size": rollout.ep,
    }
    return values | {f"{ENGINE}.{name}": value for name, value in named.items() if value is not None}


def arguments(context: Context, until: int, resume: bool) -> list[str]:
    """Overrides that do not depend on the run's folders, in the order: jobspec's, then the spec's."""
    spec, run_schedule = context.spec, schedule(context)
    steps = dummy_trainers.STEPS if dummy_trainers.is_dummy(context) else "trainer.max_training_steps"
    overrides: dict[str, Any] = {**sizes(context), steps: until}
    # 0 and not -1: with -1 a checkpoint of an earlier run counts as inconsistent.
    overrides["trainer.ckpt_interval"] = run_schedule.save_every
    overrides["trainer.resume_mode"] = "latest" if resume else "none"
    if spec.checkpoint.keep:
        overrides["trainer.max_ckpts_to_keep"] = spec.checkpoint.keep
    if spec.train.seed is not None:
        overrides["trainer.seed"] = spec.train.seed
    if spec.train.algorithm:
        overrides["trainer.algorithm.advantage_estimator"] = spec.train.algorithm
    overrides |= flat(spec.train.overrides)
    overrides[LOGGER] = logger(context)
    return [f"{key}={value_text(value)}" for key, value in overrides.items()]


def logger(context: Context) -> str | list[str]:
    """TensorBoard, which leaves numbers in files without a network, and the trackers that the spec adds.

    A SkyRL that writes to one tracker alone writes to wandb where that is asked for: it leaves a file, too.
    """
    asked = flat(context.spec.train.overrides).get(LOGGER)
    if dummy_trainers.tracks_several(context):
        names = beside((TENSORBOARD,), asked)
        return list(names) if len(names) > 1 else TENSORBOARD
    return WANDB if WANDB in tracker_names(asked) else TENSORBOARD


def value_text(value: Any) -> str:
    """A value as OmegaConf's dotlist reads it: YAML, of which JSON is a part."""
    if isinstance(value, str) and value and all(char.isalnum() or char in "._/-" for char in value):
        return value
    return json.dumps(value)


def environment(context: Context) -> dict[str, str]:
    """Variables to export before Ray starts on every node: SkyRL forwards only some of them."""
    folder = context.cluster.paths.node_local
    caches = {
        "XDG_CACHE_HOME": "",
        "UV_CACHE_DIR": "/uv",
        "TRITON_CACHE_DIR": "/triton",
        "TORCHINDUCTOR_CACHE_DIR": "/inductor",
        "VLLM_CACHE_ROOT": "/vllm",
    }
    variables = {name: f"{folder}/cache{part}" for name, part in caches.items()}
    names = logger(context)
    variables |= {
        **trackers.environment(context, (names,) if isinstance(names, str) else names),
        "TENSORBOARD_DIR": "${JOBSPEC_METRICS_DIR}/tensorboard",
        **({"WANDB_DIR": "${JOBSPEC_METRICS_DIR}"} if names == WANDB else {}),  # it holds the only metrics
        # Workers of a large model start slowly: the defaults are 180, 600 and 60 s.
        "SKYRL_RAY_PG_TIMEOUT_IN_S": "1800",
        "SKYRL_WAIT_UNTIL_INFERENCE_SERVER_HEALTHY_TIMEOUT_S": "2400",
        "RAY_worker_register_timeout_seconds": "600",
        "SKYRL_DUMP_INFRA_LOG_TO_STDOUT": "1",
    }
    if engine_nodes(context) > 1:
        variables["VLLM_USE_RAY_V2_EXECUTOR_BACKEND"] = "1"  # the default only from vLLM 0.21 on
    if "LD_LIBRARY_PATH" in {**context.cluster.env, **context.spec.container.env}:
        variables["SKYRL_LD_LIBRARY_PATH_EXPORT"] = "1"
    return variables


def engine_nodes(context: Context) -> int:
    """Nodes that one inference engine spans."""
    gpus = int(setting(context, f"{ENGINE}.tensor_parallel_size") or 1)
    gpus *= int(setting(context, f"{ENGINE}.pipeline_parallel_size") or 1)
    return -(-gpus // context.gpus_per_node) if context.gpus_per_node else 1


def shape(context: Context) -> TrainShape:
    """The run in Megatron's words, for the rules of sizes and the memory estimate."""
    spec, parallel = context.spec, context.spec.train.parallel

    def get(key: str) -> Any:
        return setting(context, key)

    longest = int(get("trainer.max_prompt_length"))
    longest += int(get("generator.sampling_params.max_generate_length"))
    kwargs = {key.rpartition(".")[2]: value for key, value in flat(spec.train.overrides).items()
              if key.startswith(f"{TRANSFORMER}.")}  # fmt: skip
    return TrainShape(
        nodes=int(get("trainer.placement.policy_num_nodes")),
        gpus_per_node=int(get("trainer.placement.policy_num_gpus_per_node")),
        framework="skyrl",
        tp=parallel.tp,
        pp=parallel.pp,
        cp=parallel.cp,
        ep=parallel.ep,
        etp=parallel.etp,
        vpp=parallel.vpp,
        sequence_parallel=parallel.tp > 1,
        first_stage_layers=kwargs.get("num_layers_in_first_pipeline_stage"),
        last_stage_layers=kwargs.get("num_layers_in_last_pipeline_stage"),
        seq_length=min(longest, _mean_length(context) or longest),
        micro_batch=int(get("trainer.micro_train_batch_size_per_gpu")),
        tokens_per_microbatch=_microbatch(context, longest),
        content=_content(context),
        packed=bool(get("trainer.remove_microbatch_padding")),
        train_batch=int(get("trainer.train_batch_size")),
        samples_per_prompt=int(get("generator.n_samples_per_prompt")),
        global_batch=int(get("trainer.policy_mini_batch_size")) * int(get("generator.n_samples_per_prompt")),
        fp32_grads=bool(get(f"{MEGATRON}.ddp_config.grad_reduce_in_fp32")),
        optimizer=_optimizer(context),
        recompute=_recompute(kwargs),
        logits_chunk=get("trainer.logprobs_chunk_size"),
        fused_logprobs=bool(get("trainer.fused_lm_head_logprob")),
        lora_rank=int(get("trainer.policy.model.lora.rank")),
        mtp_layers=kwargs.get("mtp_num_layers"),
        reference=bool(get("trainer.algorithm.use_kl_loss")),
        rollout=_rollout(context),
        keys={
            "train_batch": "train.overrides.trainer.train_batch_size",
            "global_batch": "train.overrides.trainer.policy_mini_batch_size",
            "tokens_per_microbatch": "train.overrides.trainer.max_tokens_per_microbatch",
        },
    )


def _rollout(context: Context) -> RolloutShape | None:
    """The engines in Ray; None where there are none."""
    if dummy_trainers.stubs_engines(context) or has_remote_engines(context):
        return None

    def get(name: str) -> Any:
        return setting(context, f"{ENGINE}.{name}")

    return RolloutShape(
        engines=int(get("num_engines")),
        tp=int(get("tensor_parallel_size")),
        pp=int(get("pipeline_parallel_size")),
        dp=int(get("data_parallel_size")),
        ep=int(get("expert_parallel_size")),
        colocated=bool(setting(context, "trainer.placement.colocate_all")),
        memory_fraction=float(get("gpu_memory_utilization")),
        executor="mp" if get("distributed_executor_backend") == "mp" else "ray",
    )


def _mean_length(context: Context) -> int | None:
    """Mean tokens of a harness's sequences where their lengths vary, None where they are all alike."""
    overrides, extra = flat(context.spec.train.overrides), dummy_trainers.extra_keys(context) or ()
    for switch, on, mean, default in dummy_trainers.VARIED:
        if switch in extra and overrides.get(switch) == on:
            return int(overrides.get(mean, default))
    return None


def _content(context: Context) -> Literal["text", "token per sequence", "token per batch"]:
    """What the sequences hold. Harnesses repeat one token, for each sequence or for the whole batch."""
    if not dummy_trainers.is_dummy(context):
        return "text"
    differ = dummy_trainers.RESULTS_FILE in (dummy_trainers.extra_keys(context) or ())
    return "token per sequence" if differ or _mean_length(context) else "token per batch"


def _microbatch(context: Context, longest: int) -> int | None:
    """Tokens of the largest micro-batch: the cap, or the whole equal sequences of a harness that it holds."""
    cap = int(setting(context, "trainer.max_tokens_per_microbatch") or -1)
    if cap < 1:
        return None
    equal = dummy_trainers.is_dummy(context) and not _mean_length(context)
    return max(longest, cap // longest * longest if equal else cap)


def _optimizer(context: Context) -> OptimizerShape:
    offloaded = setting(context, f"{OPTIMIZER}.optimizer_cpu_offload")
    fraction = setting(context, f"{OPTIMIZER}.optimizer_offload_fraction")
    return OptimizerShape(
        precision_aware=bool(setting(context, f"{OPTIMIZER}.use_precision_aware_optimizer")),
        offload=float(1.0 if fraction is None else fraction) if offloaded else 0.0,
    )


def _recompute(kwargs: Mapping[str, Any]) -> Recompute:
    granularity = kwargs.get("recompute_granularity")
    if granularity not in ("selective", "full"):
        return Recompute()
    return Recompute(
        granularity=granularity,
        method=kwargs.get("recompute_method") or "",
        layers=kwargs.get("recompute_num_layers"),
        modules=tuple(kwargs.get("recompute_modules") or ("core_attn",)),
    )
