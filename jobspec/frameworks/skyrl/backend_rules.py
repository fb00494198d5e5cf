"""Rules of SkyRL's two training backends, Megatron and FSDP: what each refuses late or drops silently.

Source: SkyRL at a9564572 (2026-08-21), `validate_cfg`, `TrainerConfig` and the FSDP worker's model wrapper.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from jobspec.finding import Finding, error
from jobspec.frameworks.base import Context
from jobspec.frameworks.shared.dotted_keys import flat
from jobspec.frameworks.skyrl import settings
from jobspec.frameworks.skyrl.settings import (
    BACKENDS,
    MEGATRON,
    REFERENCE,
    STRATEGY,
    TRANSFORMER,
    ULYSSES,
    setting,
    strategy,
)
from jobspec.words import did_you_mean


def check_backend(context: Context) -> Iterator[Finding]:
    both = ("trainer.algorithm.use_kl_loss", "trainer.algorithm.use_kl_in_reward")
    if all(setting(context, key) for key in both):
        what = "`use_kl_loss` and `use_kl_in_reward` exclude each other"
        yield error("skyrl.kl", what, fix="choose one", path="train.overrides")
    yield from _check_apart(context)
    named = strategy(context)
    if named == "megatron":
        yield from check_megatron(context)
    elif named == "fsdp":
        yield from check_fsdp(context)
    else:
        fix = did_you_mean(named, BACKENDS) or f"use {' or '.join(f'`{name}`' for name in BACKENDS)}"
        yield error("skyrl.strategy", f"SkyRL has no strategy `{named}`", fix=fix, path=_override(STRATEGY))


def check_megatron(context: Context) -> Iterator[Finding]:
    parallel = context.spec.train.parallel
    if parallel.vpp is not None:
        what, why = (
            "SkyRL has no virtual pipeline",
            "a run with `vpp` trains, and dies at the first checkpoint",
        )
        yield error("skyrl.vpp", what, why, "remove `vpp`", path="train.parallel.vpp")
    for end in ("first", "last"):
        key = f"{TRANSFORMER}.num_layers_in_{end}_pipeline_stage"
        if parallel.pp == 1 and setting(context, key) is not None:
            what, why = (
                f"`num_layers_in_{end}_pipeline_stage` is set for a single stage",
                "Megatron-Core refuses it",
            )
            yield error("skyrl.pipeline", what, why, "remove it", path=f"train.overrides.{key}")
    if parallel.cp > 1 and not setting(context, "trainer.remove_microbatch_padding"):
        what = "context parallelism needs `trainer.remove_microbatch_padding`"
        yield error("skyrl.context-parallel", what, fix="set it to true", path="train.parallel.cp")
    if (context.spec.train.algorithm or "grpo") == "gae":
        what, why = "SkyRL has no critic on Megatron", "`gae` needs one"
        yield error("skyrl.algorithm", what, why, "use `grpo`", path="train.algorithm")


def check_fsdp(context: Context) -> Iterator[Finding]:
    """Rules of the FSDP backend, which has no tensor, pipeline or expert parallelism."""
    yield from _check_sharding(context)
    yield from _check_engines(context)
    if setting(context, "trainer.remove_microbatch_padding") and not setting(context, "trainer.flash_attn"):
        what, why = "micro-batches without padding need flash attention", "the worker refuses to start"
        fix = "set `trainer.flash_attn` to true, or `trainer.remove_microbatch_padding` to false"
        yield error("skyrl.fsdp-padding", what, why, fix, path=_override("trainer.flash_attn"))
    for key, allowed in (("trainer.fused_lm_head_logprob", False), ("trainer.logprobs_chunk_size", True)):
        value = setting(context, key)
        if bool(value) != allowed:
            what, why = (
                f"`{key}` is {json.dumps(value)}, which only Megatron supports",
                "SkyRL refuses to start",
            )
            yield error("skyrl.fsdp-megatron", what, why, "remove it", path=_override(key))
    critic = "trainer.critic.model.path"
    if (context.spec.train.algorithm or "grpo") == "gae" and not setting(context, critic):
        what = "`gae` needs a critic"
        yield error("skyrl.algorithm", what, fix=f"set `{critic}`, or use `grpo`", path="train.algorithm")


def _check_sharding(context: Context) -> Iterator[Finding]:
    for name in ("tp", "pp", "cp", "ep", "etp", "vpp"):
        degree = getattr(context.spec.train.parallel, name) or 1
        if degree > 1:
            what = f"`{name}` is {degree}, and FSDP only shards data-parallel ranks"
            fix = f"use Megatron, or for long sequences `{ULYSSES}`" if name == "cp" else "use Megatron"
            yield error("skyrl.fsdp-parallel", what, fix=fix, path=f"train.parallel.{name}")
    for key in flat(context.spec.train.overrides):
        if key.startswith((f"{MEGATRON}.", f"{REFERENCE}.")):
            what = f"`{key}` does nothing with FSDP"
            yield error("skyrl.fsdp-megatron", what, fix="remove it, or use Megatron", path=_override(key))
    if settings.data_parallel(context) < 1:
        gpus = settings.trainer_gpus(context)
        what = f"{gpus} GPUs do not divide into groups of {setting(context, ULYSSES)} for one sequence"
        yield error("skyrl.fsdp-ulysses", what, fix=f"use a divisor of {gpus}", path=_override(ULYSSES))


def _check_engines(context: Context) -> Iterator[Finding]:
    """Colocated engines must cover the trainer's GPUs; for Megatron the rules of its shape say so."""
    engines, trainer = settings.engine_gpus(context), settings.trainer_gpus(context)
    if setting(context, "trainer.placement.colocate_all") and engines != trainer:
        what = f"engines have {engines} GPUs and the trainer has {trainer}, but both share the same GPUs"
        why, fix = "SkyRL needs the same number for both", "set `train.rollout.engines` and its `tp`"
        yield error("skyrl.colocated", what, why, fix, path="train.rollout.engines")


def _check_apart(context: Context) -> Iterator[Finding]:
    """A separate trainer and its engines must fit into the job together: Ray waits for missing GPUs."""
    if setting(context, "trainer.placement.colocate_all") or settings.has_remote_engines(context):
        return
    engines, trainer = settings.engine_gpus(context), settings.trainer_gpus(context)
    nodes = context.spec.resources.nodes
    gpus, fewer = nodes * context.gpus_per_node, "nodes" if nodes > 1 else "gpus_per_node"
    if engines + trainer > gpus:
        yield error(
            "skyrl.placement",
            f"trainer and engines want {trainer} + {engines} GPUs, and the job has {gpus}",
            "with `colocate_all: false` they share none, and Ray waits for missing GPUs until its deadline",
            f"give the trainer fewer GPUs by `trainer.placement.policy_num_{fewer}`, or set fewer engines",
            path="train.overrides.trainer.placement.colocate_all",
        )


def _override(key: str) -> str:
    return f"train.overrides.{key}"
