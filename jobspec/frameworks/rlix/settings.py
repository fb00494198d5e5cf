"""The settings of each pipeline: GPUs, NeMo-RL's overrides and RLix's wrapper, by spec and level. Pure.

Source: rlops/rlix, branch `nemo` at f77d913 (2026-05-12): `examples/start_nemo_rl_multi_pipeline.py`,
`examples/nemo_rl_test/*.yaml` and `rlix/pipeline/coordinator.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from jobspec.frameworks.base import Context
from jobspec.frameworks.rlix.checkout import roots
from jobspec.frameworks.shared.dotted_keys import flat
from jobspec.frameworks.shared.nemo_recipe import ENGINE, SIZES, Config, get, number, set_values
from jobspec.spec.job import Parallel, Pipeline, Rollout

DEFAULT_STEPS = {"smoke": 6, "multi": 6, "learning": 50}
SLEEP_LEVEL = "actor_infer.strategy_args.strategy_config.sleep_level"
COLOCATED = "rlix_max_colocated_worker_groups"
VERIFY = "verify_model_after_sync"
ADMIT = "admit_delay_s"
OFFLOAD = ("actor_train.offload_nccl", "actor_infer.offload_nccl")
REWARD = "reward.device_mapping"
BUCKET_ENV, BUCKET_KEY = "RLIX_BUCKET_SIZE_BYTES", "policy.rlix.bucket_size_bytes"
# RLix's own settings among the overrides, with the values of its published 2-GPU example. All other overrides
# are NeMo-RL's. The driver's own default for `--admit-delay-s` is 0, which means 30 s for the first step of a
# pipeline before the next: too short for any model.
WRAPPER: Mapping[str, Any] = {
    SLEEP_LEVEL: 2,
    COLOCATED: 4,
    VERIFY: False,
    ADMIT: 900,
    **dict.fromkeys(OFFLOAD, True),
    REWARD: [],
}
# Set from the spec's own keys, in the wrapper and in NeMo-RL's configuration.
OWNED: Mapping[str, str] = {
    "pipeline_cls": "framework",
    "exp_name": "pipelines[].name",
    "nemo_config_path": "pipelines[].config",
    "nemo_rl_config_path": "pipelines[].config",
    "nemo_config_overrides": "train.overrides",
    "train_device_mapping": "pipelines[].train_gpus",
    "infer_device_mapping": "pipelines[].infer_gpus",
    "rlix.train_device_mapping": "pipelines[].train_gpus",
    "rlix.infer_device_mapping": "pipelines[].infer_gpus",
    "actor_train.device_mapping": "pipelines[].train_gpus",
    "actor_infer.device_mapping": "pipelines[].infer_gpus",
    "num_gpus_per_node": "resources.gpus_per_node",
    "nemo_increment_log_dir": "artifacts",
    "cluster.gpus_per_node": "resources.gpus_per_node",
    "cluster.num_nodes": "resources.nodes",
    "grpo.max_num_steps": "train.steps",
    "logger.log_dir": "artifacts",
    "logger.tensorboard_enabled": "metrics",
    "checkpointing.enabled": "checkpoint.every",
    "checkpointing.save_period": "checkpoint.every",
    "checkpointing.keep_top_k": "checkpoint.keep",
    "checkpointing.checkpoint_dir": "checkpoint.dir",
}
MODEL = "policy.model_name"
PROMPT = "data.default.prompt_file"
PLAIN_WORD = re.compile(r"[A-Za-z_][\w./-]*\Z", re.ASCII)
# Words that Hydra's grammar does not read as text.
RESERVED = frozenset({"true", "false", "null", "nan", "inf"})


@dataclass(frozen=True)
class PipelineSettings:
    """One pipeline, with the shared settings of the spec filled in."""

    index: int
    spec: Pipeline
    context: Context
    train: tuple[int, ...]
    infer: tuple[int, ...]
    steps: int
    overrides: Mapping[str, Any]  # the spec's, flat, for NeMo-RL
    wrapper: Mapping[str, Any]  # RLix's own
    recipe: Config | None = None  # the configuration file, None where it cannot be read from here

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def path(self) -> str:
        return f"pipelines[{self.index}]"

    @cached_property
    def config(self) -> Config:
        """NeMo-RL's configuration for this pipeline; without a recipe only the overrides."""
        return set_values(self.recipe or {}, self.chosen.items())

    @cached_property
    def chosen(self) -> Mapping[str, Any]:
        """Overrides, later ones win: needs of asynchronous GRPO, sizes, the spec's, jobspec's."""
        return {**dict(_needed(self)), **dict(_sizes(self)), **self.overrides, **dict(_owned(self))}

    @property
    def arguments(self) -> tuple[str, ...]:
        """The overrides as Hydra reads them, `key=value`."""
        return tuple(f"{key}={hydra_value(value)}" for key, value in self.chosen.items())

    def size(self, name: str) -> int:
        """A degree of the trainer's parallelism."""
        return number(self.config, SIZES[name]) or 1

    @property
    def engine_tp(self) -> int:
        return number(self.config, ENGINE["tp"]) or 1

    @property
    def model(self) -> str:
        """Id or folder of the trained model; empty where only a resolver knows it."""
        own, model = self.overrides.get(MODEL), self.context.spec.model
        if own is None and model is not None:
            return model.id or model.path or ""
        return str(get(self.config, MODEL) or "")


def pipeline_settings(
    context: Context, recipes: Mapping[str, Config] | None = None
) -> tuple[PipelineSettings, ...]:
    """The spec's pipelines; `recipes` are the configurations that could be read, by pipeline."""
    every_gpu = tuple(range(context.gpus_per_node))  # RLix has one node, whatever the spec asks for
    return tuple(
        _settings(context, index, pipeline, every_gpu, (recipes or {}).get(pipeline.name))
        for index, pipeline in enumerate(context.spec.pipelines)
    )


def _settings(
    context: Context, index: int, pipeline: Pipeline, every_gpu: tuple[int, ...], recipe: Config | None
) -> PipelineSettings:
    shared = context.spec.train
    overrides = {
        setting(key): value
        for mapping in (shared.overrides, pipeline.train.overrides)
        for key, value in flat(mapping).items()
    }
    steps = pipeline.train.steps or shared.steps or DEFAULT_STEPS[context.level.name]
    return PipelineSettings(
        index,
        pipeline,
        context,
        tuple(sorted(pipeline.train_gpus)),
        tuple(sorted(pipeline.infer_gpus)) or every_gpu,
        steps,
        {key: value for key, value in overrides.items() if key not in WRAPPER},
        {**WRAPPER, **{key: value for key, value in overrides.items() if key in WRAPPER}},
        recipe,
    )


def setting(key: str) -> str:
    """The key; RLix's own settings lose a leading `+`, since they are no Hydra overrides."""
    bare = key.lstrip("+")
    return bare if bare in WRAPPER else key


def _needed(pipeline: PipelineSettings) -> Iterator[tuple[str, Any]]:
    """Settings of NeMo-RL that the way through RLix needs; the rules check overrides of them."""
    gpus = pipeline.context.gpus_per_node
    yield "policy.megatron_cfg.enabled", True
    yield "policy.dtensor_cfg.enabled", False
    yield "policy.generation.backend", "vllm"
    yield "policy.generation.colocated.enabled", False
    # NeMo-RL divides one node into two parts that do not overlap. RLix hands out the GPUs itself, but the
    # numbers must still pass NeMo-RL's own check.
    yield "policy.generation.colocated.resources.gpus_per_node", max(1, gpus - len(pipeline.train))
    yield "policy.generation.vllm_cfg.async_engine", True
    yield "grpo.async_grpo.enabled", True
    yield "loss_fn.use_importance_sampling_correction", True
    yield "logger.monitor_gpus", False  # each pipeline would watch all GPUs, with seconds for steps
    if pipeline.context.spec.model is not None:
        yield MODEL, "${oc.env:JOBSPEC_MODEL_PATH}"
    prompt = get(pipeline.recipe or {}, PROMPT)
    root = roots(pipeline.context)[1]
    if isinstance(prompt, str) and prompt and root and not PurePosixPath(prompt).is_absolute():
        # The data set is made inside an actor, whose folder is not the checkout.
        yield PROMPT, f"{root}/{prompt}"


def _sizes(pipeline: PipelineSettings) -> Iterator[tuple[str, Any]]:
    """All degrees of parallelism once the spec sets one, so that none of the configuration's is left."""
    shared, own = pipeline.context.spec.train, pipeline.spec.train
    parallel: Parallel = own.parallel or shared.parallel
    rollout: Rollout = own.rollout or shared.rollout
    if own.parallel is not None or parallel != Parallel():
        yield from ((key, getattr(parallel, name)) for name, key in SIZES.items())
        yield "policy.megatron_cfg.sequence_parallel", parallel.tp > 1
    for name, key in ENGINE.items():
        if (size := getattr(rollout, name)) is not None:
            yield key, size


def _owned(pipeline: PipelineSettings) -> Iterator[tuple[str, Any]]:
    spec = pipeline.context.spec
    seed = pipeline.spec.train.seed if pipeline.spec.train.seed is not None else spec.train.seed
    yield "grpo.max_num_steps", pipeline.steps
    if seed is not None:
        yield "grpo.seed", seed
    yield "cluster.num_nodes", 1
    yield "cluster.gpus_per_node", pipeline.context.gpus_per_node
    yield "logger.log_dir", f"${{oc.env:JOBSPEC_ATTEMPT_DIR}}/rlix/{pipeline.name}"
    yield "logger.tensorboard_enabled", True
    yield "checkpointing.enabled", spec.checkpoint.every is not None
    yield "checkpointing.checkpoint_dir", f"${{oc.env:JOBSPEC_CHECKPOINT_DIR}}/{pipeline.name}"
    if spec.checkpoint.every is not None:
        yield "checkpointing.save_period", spec.checkpoint.every
    if spec.checkpoint.keep is not None:
        yield "checkpointing.keep_top_k", spec.checkpoint.keep


def hydra_value(value: Any) -> str:
    """A value in Hydra's grammar, with quotes around text that the grammar would not read as text.

    Source: Hydra 1.3, "Extended Override syntax": in quotes only the quote and backslashes before it count.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{hydra_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(hydra_value(item) for item in value) + "]"
    text = str(value)
    if not isinstance(value, str) or (PLAIN_WORD.match(text) and text.lower() not in RESERVED):
        return text
    escaped = re.sub(r"(\\*)'", lambda match: match.group(1) * 2 + r"\'", text)
    tail = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{chr(92) * tail}'"


def bucket_bytes(context: Context) -> int | None:
    """The bytes of a staging bucket in the spec or the site; None without a value, 0 when it is no size."""
    env = {**context.cluster.env, **context.spec.container.env}
    if BUCKET_ENV not in env:
        return None
    return int(env[BUCKET_ENV]) if env[BUCKET_ENV].isascii() and env[BUCKET_ENV].isdecimal() else 0
