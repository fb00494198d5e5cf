"""The `TrainShape` of a variant, from its composed recipe, without values that only a resolver knows."""

from __future__ import annotations

import dataclasses

from msgspec.structs import replace

from jobspec.frameworks.base import Context
from jobspec.frameworks.nemo_rl.variant import MODEL_KEYS, Variant
from jobspec.frameworks.shared.nemo_recipe import ENGINE, Config, get, number
from jobspec.frameworks.shared.nemo_trainer_shape import trainer_shape
from jobspec.megatron.shape import RolloutShape, TrainShape

GENERATION = "policy.generation"
FIXED = ("tp", "pp", "cp", "ep", "etp", "rollout.tp", "rollout.pp", "rollout.ep")


def train_shape(context: Context, variant: Variant, recipe: Config) -> TrainShape:
    """Sizes of the trainer, without the GPUs of separate generators."""
    nodes = variant.nodes or context.spec.resources.nodes
    # The spec's own model has sizes of its own, also where nobody knows them: never the variant's.
    model = "" if context.spec.model else variant.model
    model = str(context.spec.train.overrides.get(MODEL_KEYS[0], model))
    return sized(replace(variant, model=model), recipe, nodes, context.gpus_per_node)


def sized(variant: Variant, recipe: Config, nodes: int, gpus: int) -> TrainShape:
    """`train_shape` on that many nodes and GPUs of each, of which a variant may use fewer."""
    return dataclasses.replace(
        trainer_shape(recipe, *_trainer(variant, recipe, nodes, gpus)),
        model=variant.model,
        rollout=_rollout(recipe, variant),
        keys={} if variant.sizes else dict.fromkeys(FIXED, "coverage.variants"),
    )


def _trainer(variant: Variant, recipe: Config, nodes: int, available: int) -> tuple[int, int]:
    gpus = (number(recipe, "cluster.gpus_per_node") if not variant.is_entry else None) or variant.gpus
    gpus = gpus if variant.nodes else available
    if get(recipe, f"{GENERATION}.colocated.enabled") is not False:
        return nodes, gpus
    if nodes > 1:
        return nodes - (number(recipe, f"{GENERATION}.colocated.resources.num_nodes") or 0), gpus
    return nodes, gpus - (number(recipe, f"{GENERATION}.colocated.resources.gpus_per_node") or 0)


def _rollout(recipe: Config, variant: Variant) -> RolloutShape | None:
    """vLLM's engines; Megatron as the generator uses the trainer's own sizes."""
    if get(recipe, f"{GENERATION}.backend") != "vllm" or variant.trainer in ("sft", "dpo"):
        return None
    colocated = get(recipe, f"{GENERATION}.colocated.enabled") is not False
    share = get(recipe, f"{GENERATION}.vllm_cfg.gpu_memory_utilization")
    quantized = get(recipe, f"{GENERATION}.quant_cfg") or get(
        recipe, f"{GENERATION}.vllm_kwargs.quantization"
    )
    precision = str(get(recipe, f"{GENERATION}.vllm_cfg.precision"))
    several = variant.nodes != 1 and not colocated
    return RolloutShape(
        tp=number(recipe, ENGINE["tp"]) or 1,
        pp=number(recipe, ENGINE["pp"]) or 1,
        ep=number(recipe, ENGINE["ep"]) or 1,
        colocated=colocated,
        nodes=(number(recipe, f"{GENERATION}.colocated.resources.num_nodes") or 0) if several else 0,
        precision="fp8" if precision == "fp8" else "" if quantized or precision != "bfloat16" else "bf16",
        memory_fraction=float(share) if isinstance(share, (int, float)) else None,
    )
