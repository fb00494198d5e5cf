"""Variants of levels 2 and 3: how weights reach a generator, and Megatron as the generator."""

from __future__ import annotations

from dataclasses import replace

from jobspec.frameworks.nemo_rl.variant import MetricCheck, Variant
from jobspec.frameworks.nemo_rl.variant_parts import (
    CLOSE,
    GRPO_STEPS,
    KL_ERROR,
    LOSS,
    MEGATRON_CONFIG,
    NON_COLOCATED,
    RECIPES,
    REWARD,
    SMOKE,
    TOKEN_ERROR,
    sh,
)

REFIT = (
    Variant(
        "non-colocated",
        2,
        "weights exported by the Bridge reached vLLM on another GPU",
        sh("grpo_megatron"),
        2,
        NON_COLOCATED,
        config=MEGATRON_CONFIG,
        steps_key=GRPO_STEPS,
        proofs=("non-colocated",),
        checks=SMOKE,
    ),
    Variant(
        "reshard",
        2,
        "weights reached vLLM on another GPU by the resharding transport of NCCL",
        sh("grpo_nccl_reshard_refit"),
        2,
        config=MEGATRON_CONFIG,
        proofs=("non-colocated", "reshard-transport"),
        checks=CLOSE,
        model="Qwen/Qwen3-0.6B",
    ),
    Variant(
        "delta",
        2,
        "compressed differences of the weights reached vLLM on other nodes",
        "examples/run_grpo.py",
        50,
        config=f"{RECIPES}/grpo-qwen3-30ba3b-4n8g-megatron-zmq-deltaweight-noncolocated.yaml",
        nodes=4,
        gpus=8,
        proofs=("non-colocated", "delta-transport"),
        checks=(
            MetricCheck("median", TOKEN_ERROR, "<", 1.03),
            MetricCheck("at", TOKEN_ERROR, "<", 1.03, 50),
            MetricCheck("ratio_above", TOKEN_ERROR, "<", 0.05, 1.03),
            MetricCheck("at", REWARD, ">", 0.2, 50),
            MetricCheck("min", "refit/transfer/payloads", ">", 0),
            MetricCheck("min", "refit/transfer/relay_flush_s", ">", 0),
            MetricCheck("min", "refit/delta/changed_pct", ">", 0),
            MetricCheck("max", "refit/delta/changed_pct", "<=", 5),
        ),
        model="Qwen/Qwen3-30B-A3B",
    ),
)

# The maintainers' own suite skips all of these from compute capability 10.0 on.
BASE = Variant(
    "megatron-generation",
    3,
    "Megatron generated the completions",
    sh("grpo_megatron_generation"),
    2,
    config=MEGATRON_CONFIG,
    steps_key=GRPO_STEPS,
    proofs=("megatron-generation",),
    checks=CLOSE,
    max_capability="10.0",
)
GENERATION = (
    BASE,
    replace(
        BASE,
        name="no-graphs",
        proves="Megatron generated the completions without CUDA graphs",
        overrides=(
            "policy.generation.mcore_generation_config.num_cuda_graphs=null",
            "policy.generation.mcore_generation_config.use_cuda_graphs_for_non_decode_steps=false",
        ),
        limitation="CUDA graphs were off: a pass with less optimisation, no pass of the default",
    ),
    replace(
        BASE,
        name="generation-non-colocated",
        proves="Megatron generated on another GPU, with weights sent by NCCL",
        script=sh("grpo_megatron_generation_non_colocated"),
        proofs=(*BASE.proofs, "non-colocated"),
    ),
    replace(
        BASE,
        name="generation-reshard",
        proves="a second Megatron model with other sizes generated on the trainer's GPUs",
        script=sh("grpo_megatron_generation_colocated_reshard"),
        proofs=(*BASE.proofs, "inference-model"),
        model="Qwen/Qwen3-0.6B",
    ),
    replace(
        BASE,
        name="generation-topology",
        proves="Megatron generated on GPUs chosen by NVLink domain",
        script=sh("grpo_megatron_generation_topology"),
        proofs=(*BASE.proofs, "topology"),
        owns_ray=True,
        limitation="the NVLink domain is synthetic: nothing is proved about a real one",
    ),
    replace(
        BASE,
        name="generation-sampling",
        proves="Megatron sampled with temperature, top-p and top-k",
        script=sh("grpo_megatron_generation_topp_topk"),
        checks=(MetricCheck("max", TOKEN_ERROR, "<", 1.06),),
    ),
    replace(
        BASE,
        name="generation-async",
        proves="asynchronous GRPO with Megatron generating on the trainer's GPUs, and validation",
        script=sh("grpo_megatron_generation_colocated_async_grpo"),
        steps=3,
        steps_key="",
        trainer="async",
        proofs=(*BASE.proofs, "deferred-wake"),
        checks=(
            MetricCheck("median", KL_ERROR, "<", 1.3),
            MetricCheck("has", LOSS, argument=3),
            MetricCheck("has", "validation/accuracy", argument=3),
        ),
        own_checkpoint_dir=True,
        limitation="the script removes its checkpoint: no save is proved",
    ),
)
