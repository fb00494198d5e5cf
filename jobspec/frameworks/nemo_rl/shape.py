"""The `TrainShape` of a variant, from its composed recipe. What only a resolver knows is left out."""

from __future__ import annotations

from jobspec.frameworks.base import Context
from jobspec.frameworks.nemo_config import ENGINE, SIZES, Config, get, number
from jobspec.frameworks.nemo_rl.arguments import SEQUENCE_PARALLEL
from jobspec.frameworks.nemo_rl.variant import MODEL_KEYS, Variant
from jobspec.megatron.shape import OptimizerShape, Recompute, RolloutShape, TrainShape

GENERATION, MEGATRON = "policy.generation", "policy.megatron_cfg"
FIXED = ("tp", "pp", "cp", "ep", "etp", "rollout.tp", "rollout.pp", "rollout.ep")


def train_shape(context: Context, variant: Variant, recipe: Config) -> TrainShape:
    """Sizes of the trainer: GPUs of separate generators are not among them."""
    nodes, gpus = _trainer(context, variant, recipe)
    lora = number(recipe, "policy.megatron_cfg.peft.dim") or 0
    sizes = {name: number(recipe, key) or 1 for name, key in SIZES.items()}
    return TrainShape(
        nodes,
        gpus,
        framework="nemo_rl",
        model=str(context.spec.train.overrides.get(MODEL_KEYS[0], variant.model)),
        tp=sizes["tp"],
        pp=sizes["pp"],
        cp=sizes["cp"],
        ep=sizes["ep"],
        etp=sizes["etp"],
        sequence_parallel=get(recipe, SEQUENCE_PARALLEL) is True,
        first_stage_layers=number(recipe, "policy.megatron_cfg.num_layers_in_first_pipeline_stage"),
        last_stage_layers=number(recipe, "policy.megatron_cfg.num_layers_in_last_pipeline_stage"),
        seq_length=number(recipe, "policy.max_total_sequence_length"),
        micro_batch=number(recipe, "policy.train_micro_batch_size"),
        packed=get(recipe, "policy.sequence_packing.enabled") is True,
        train_batch=number(recipe, "grpo.num_prompts_per_step"),
        samples_per_prompt=number(recipe, "grpo.num_generations_per_prompt") or 1,
        global_batch=number(recipe, "policy.train_global_batch_size"),
        fp8=get(recipe, "policy.megatron_cfg.fp8_cfg.enabled") is True,
        fp32_grads=get(recipe, f"{MEGATRON}.distributed_data_parallel_config.grad_reduce_in_fp32")
        is not False,
        optimizer=_optimizer(recipe),
        logits_chunk=number(recipe, "policy.logprob_chunk_size"),
        fused_logprobs=get(recipe, f"{MEGATRON}.use_fused_linear_logprobs") is True,
        recompute=Recompute("full", "uniform", 1) if _recomputes(recipe) else Recompute(),
        reference=(get(recipe, "loss_fn.reference_policy_kl_penalty") or 0) != 0,
        lora_rank=lora if get(recipe, "policy.megatron_cfg.peft.enabled") is True else 0,
        rollout=_rollout(recipe, variant),
        keys={} if variant.sizes else dict.fromkeys(FIXED, "coverage.variants"),
    )


def _optimizer(recipe: Config) -> OptimizerShape:
    away = get(recipe, f"{MEGATRON}.optimizer.optimizer_cpu_offload") is True
    share = get(recipe, f"{MEGATRON}.optimizer.optimizer_offload_fraction")
    return OptimizerShape(
        precision_aware=get(recipe, f"{MEGATRON}.optimizer.use_precision_aware_optimizer") is True,
        offload=float(share if isinstance(share, (int, float)) else 1.0) if away else 0.0,
    )


def _recomputes(recipe: Config) -> bool:
    return get(recipe, "policy.megatron_cfg.activation_checkpointing") is True


def _trainer(context: Context, variant: Variant, recipe: Config) -> tuple[int, int]:
    nodes = variant.nodes or context.spec.resources.nodes
    gpus = (number(recipe, "cluster.gpus_per_node") if not variant.is_entry else None) or variant.gpus
    gpus = gpus if variant.nodes else context.gpus_per_node
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
