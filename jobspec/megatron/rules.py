"""Megatron-Core's rules about sizes, so that they fail before 64 GPUs are up and not after.

A rule looks at a `TrainShape` and, where it is known, at the model. It yields a `Violation` for each broken
condition, with values of single fields that satisfy it. No rule judges a field that an adapter left out.
Source of line numbers: NVIDIA/Megatron-LM d98e8a64 (2026-08-22), below megatron/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jobspec.finding import Finding, error, warning
from jobspec.megatron import model_rules, run_rules
from jobspec.megatron.architecture import Architecture
from jobspec.megatron.shape import TrainShape
from jobspec.megatron.violation import Violation

Check = Callable[[TrainShape, Architecture | None], Iterator[Violation]]


@dataclass(frozen=True)
class Rule:
    """A condition with a stable id. `text` is the condition itself, `source` where it is enforced."""

    id: str
    text: str
    source: str
    check: Check
    is_error: bool = True

    def findings(self, shape: TrainShape, arch: Architecture | None) -> Iterator[Finding]:
        make = error if self.is_error else warning
        for broken in self.check(shape, arch):
            yield make(
                self.id,
                broken.what,
                why=f"{self.text} [{self.source}]",
                fix=_fix(shape, broken),
                path=shape.key(broken.field),
            )


def _fix(shape: TrainShape, broken: Violation) -> str:
    ways = []
    for name, values in broken.nearest.items():
        shown = " or ".join(f"`{value}`" for value in values)
        ways.append(f"{shape.key(name)}: {shown}" if shape.key(name).endswith(name) else f"{name} {shown}")
    text = "; or ".join(ways)
    return "; ".join(
        part for part in (f"use the nearest valid value: {text}" if text else "", broken.fix) if part
    )


RULES: tuple[Rule, ...] = (
    Rule(
        "megatron.world",
        "GPUs % (tp x pp x cp) == 0; the quotient is the data-parallel size",
        "core/parallel_state.py:815",
        model_rules.check_world,
    ),
    Rule(
        "megatron.expert-grid",
        "GPUs % (etp x ep x pp) == 0; cp is no factor of the experts' grid, and etp is tp unless given",
        "core/parallel_state.py:871",
        model_rules.check_expert_grid,
    ),
    Rule(
        "megatron.tp-node",
        "tensor parallelism communicates in every layer and belongs inside an NVLink domain",
        "Megatron-Core's user guide, parallelism strategies",
        model_rules.check_tp_in_node,
        is_error=False,
    ),
    Rule(
        "megatron.experts",
        "experts % ep == 0, and ep > 1 needs experts",
        "core/transformer/moe/moe_layer.py:186, core/transformer/transformer_config.py:1595",
        model_rules.check_experts,
    ),
    Rule(
        "megatron.layers",
        "stages without a given number of layers share the rest evenly, and none is empty",
        "core/transformer/transformer_config.py:2296, core/models/hybrid/hybrid_layer_allocation.py:331",
        model_rules.check_layers,
    ),
    Rule(
        "megatron.vpp",
        "vpp needs pp > 1 and divides the layers of every pipeline rank",
        "core/transformer/transformer_config.py:2296",
        model_rules.check_virtual,
    ),
    Rule(
        "megatron.vpp-skyrl",
        "SkyRL checkpoints hold one model chunk per rank: a run with vpp trains and fails at its first save",
        "SkyRL main a9564572",
        model_rules.check_no_virtual,
    ),
    Rule(
        "megatron.heads",
        "heads % tp == 0, and key-value groups % tp == 0 or tp % key-value groups == 0",
        "core/transformer/transformer_config.py:1446",
        model_rules.check_heads,
    ),
    Rule(
        "megatron.ffn",
        "feed-forward widths % tp == 0, and the experts' width % etp == 0",
        "core/tensor_parallel/layers.py (divide)",
        model_rules.check_mlp_width,
    ),
    Rule(
        "megatron.mamba",
        "Mamba heads and groups % tp == 0; with cp, a rank's heads % cp == 0 and its groups fit cp",
        "core/ssm/mamba_mixer.py:262, core/ssm/mamba_context_parallel.py:106",
        model_rules.check_mamba,
    ),
    Rule(
        "megatron.linear-attention",
        "key heads and value heads of linear attention % (tp x cp) == 0",
        "core/transformer/transformer_config.py:1501",
        model_rules.check_delta,
    ),
    Rule(
        "megatron.sequence-parallel",
        "experts with tp > 1 need sequence parallelism",
        "core/model_parallel_config.py",
        run_rules.check_sequence_parallel,
    ),
    # Not an error: a published recipe of NeMo RL has it, and sets it where Megatron-Core does not look again.
    Rule(
        "megatron.sequence-parallel-tp1",
        "sequence parallelism needs tp > 1; Megatron-Core refuses it where its configuration is made",
        "core/model_parallel_config.py",
        run_rules.check_sequence_alone,
        is_error=False,
    ),
    Rule(
        "megatron.context-parallel",
        "a sequence is cut into 2 x cp pieces, and an RL framework does so with packed sequences only",
        "training/arguments.py:1335, SkyRL's validate_megatron_cfg, NeMo RL's Megatron setup",
        run_rules.check_context,
    ),
    Rule(
        "megatron.recompute",
        "full recomputation needs a method and a number of layers, selective takes no number of layers",
        "core/transformer/transformer_config.py",
        run_rules.check_recompute,
    ),
    Rule(
        "megatron.batch-dp",
        "samples of an optimizer step % data-parallel size == 0",
        "core/num_microbatches_calculator.py",
        run_rules.check_batch_dp,
    ),
    Rule(
        "megatron.batch-micro",
        "samples of a data-parallel rank % micro-batch == 0 unless micro-batches are filled by tokens",
        "core/num_microbatches_calculator.py",
        run_rules.check_batch_micro,
    ),
    Rule(
        "megatron.batch-steps",
        "samples of a step % samples of an optimizer step == 0",
        "SkyRL's validate_batch_sizes; samples that do not fill an optimizer step are dropped or an error",
        run_rules.check_batch_steps,
    ),
    Rule(
        "megatron.placement",
        "colocated engines x tp x pp x dp fill the trainer's GPUs, separate ones their own nodes",
        "SkyRL's validate_cfg; NeMo RL's and verl's worker groups",
        run_rules.check_placement,
    ),
    Rule(
        "megatron.engine-experts",
        "an engine's ep is 1 or its dp x tp",
        "SkyRL's validate_generator_cfg; vLLM derives it so",
        run_rules.check_engine_experts,
    ),
    Rule(
        "megatron.engine-node",
        "vLLM's `mp` executor keeps an engine inside one node",
        "SkyRL's validate_cfg; vLLM, distributed serving",
        run_rules.check_engine_node,
    ),
    Rule(
        "megatron.engine-heads",
        "attention heads, key-value groups, Mamba groups and linear-attention heads fit an engine's tp",
        "vLLM, model_executor/layers",
        run_rules.check_engine_heads,
    ),
)


def check_shape(shape: TrainShape, arch: Architecture | None) -> tuple[Finding, ...]:
    """Every rule that a shape breaks; without an architecture only those that need none."""
    return tuple(finding for rule in RULES for finding in rule.findings(shape, arch))


def is_valid(shape: TrainShape, arch: Architecture | None) -> bool:
    """Whether no rule finds an error; the first error ends the search."""
    return not any(next(rule.check(shape, arch), None) for rule in RULES if rule.is_error)
