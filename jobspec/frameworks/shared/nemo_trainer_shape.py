"""The sizes that a recipe of NeMo-RL gives Megatron's trainer, without model, engines and spec keys."""

from __future__ import annotations

from jobspec.frameworks.shared.nemo_recipe import MEGATRON, SIZES, Config, get, number
from jobspec.megatron.shape import OptimizerShape, Recompute, TrainShape

SEQUENCE_PARALLEL = f"{MEGATRON}.sequence_parallel"


def trainer_shape(recipe: Config, nodes: int, gpus_per_node: int) -> TrainShape:
    """The trainer's shape on separate GPUs, without the values that only a resolver knows."""
    sizes = {name: number(recipe, key) or 1 for name, key in SIZES.items()}
    lora = number(recipe, f"{MEGATRON}.peft.dim") or 0
    reduces = f"{MEGATRON}.distributed_data_parallel_config.grad_reduce_in_fp32"
    recomputes = get(recipe, f"{MEGATRON}.activation_checkpointing") is True
    return TrainShape(
        nodes,
        gpus_per_node,
        framework="nemo_rl",
        tp=sizes["tp"],
        pp=sizes["pp"],
        cp=sizes["cp"],
        ep=sizes["ep"],
        etp=sizes["etp"],
        sequence_parallel=get(recipe, SEQUENCE_PARALLEL) is True,
        first_stage_layers=number(recipe, f"{MEGATRON}.num_layers_in_first_pipeline_stage"),
        last_stage_layers=number(recipe, f"{MEGATRON}.num_layers_in_last_pipeline_stage"),
        seq_length=number(recipe, "policy.max_total_sequence_length"),
        micro_batch=number(recipe, "policy.train_micro_batch_size"),
        packed=get(recipe, "policy.sequence_packing.enabled") is True,
        train_batch=number(recipe, "grpo.num_prompts_per_step"),
        samples_per_prompt=number(recipe, "grpo.num_generations_per_prompt") or 1,
        global_batch=number(recipe, "policy.train_global_batch_size"),
        fp32_grads=get(recipe, reduces) is not False,
        optimizer=_optimizer(recipe),
        logits_chunk=number(recipe, "policy.logprob_chunk_size"),
        fused_logprobs=get(recipe, f"{MEGATRON}.use_fused_linear_logprobs") is True,
        recompute=Recompute("full", "uniform", 1) if recomputes else Recompute(),
        reference=(get(recipe, "loss_fn.reference_policy_kl_penalty") or 0) != 0,
        lora_rank=lora if get(recipe, f"{MEGATRON}.peft.enabled") is True else 0,
    )


def _optimizer(recipe: Config) -> OptimizerShape:
    away = get(recipe, f"{MEGATRON}.optimizer.optimizer_cpu_offload") is True
    share = get(recipe, f"{MEGATRON}.optimizer.optimizer_offload_fraction")
    return OptimizerShape(
        precision_aware=get(recipe, f"{MEGATRON}.optimizer.use_precision_aware_optimizer") is True,
        offload=float(share if isinstance(share, (int, float)) else 1.0) if away else 0.0,
    )
