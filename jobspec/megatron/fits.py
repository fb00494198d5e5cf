"""Conditions of Megatron-Core and vLLM as plain predicates; the rules say what is wrong."""

from __future__ import annotations

from jobspec.megatron.architecture import ATTENTION, MLP, Architecture
from jobspec.megatron.shape import RolloutShape, TrainShape

RACK_GPUS_PER_NODE = 4  # nodes of a GB200 or GB300 rack have four GPUs and share one NVLink domain


def expert_group(shape: TrainShape) -> int:
    return shape.expert_tp * shape.ep * shape.pp


def widths(arch: Architecture) -> tuple[int, ...]:
    """Widths of feed-forward layers that tensor parallelism divides."""
    return ((arch.ffn,) if arch.count(MLP) else ()) + ((arch.shared_ffn,) if arch.shared_ffn else ())


def given_stages(shape: TrainShape) -> list[tuple[str, int]]:
    pairs = (("first", shape.first_stage_layers), ("last", shape.last_stage_layers))
    return [(name, count) for name, count in pairs if count is not None]


def layers_fit(shape: TrainShape, layers: int) -> bool:
    """Whether every pipeline stage gets a whole number of layers, and at least one."""
    fixed = given_stages(shape)
    extra = int(shape.embedding_in_split) + int(shape.loss_in_split)
    rest = layers + extra - sum(count for _, count in fixed)
    middle = shape.pp - len(fixed)
    if any(count < 1 for _, count in fixed) or middle < 0:
        return False
    return rest == 0 if middle == 0 else rest > 0 and rest % middle == 0


def chunks_fit(shape: TrainShape, layers: int) -> bool:
    vpp = shape.vpp or 1
    fixed = given_stages(shape)
    extra = int(shape.embedding_in_split) + int(shape.loss_in_split)
    rest = layers + extra - sum(count for _, count in fixed)
    middle = shape.pp - len(fixed)
    return all(count % vpp == 0 for _, count in fixed) and (not middle or rest // middle % vpp == 0)


def heads_fit(arch: Architecture, tp: int) -> bool:
    shared = arch.mla is not None or arch.kv_groups % tp == 0 or tp % arch.kv_groups == 0
    return arch.heads % tp == 0 and shared


def mamba_fits(arch: Architecture, tp: int, cp: int) -> bool:
    size = arch.mamba
    if size is None:
        return True
    if size.heads % tp or size.groups % tp or size.heads % size.groups:
        return False
    groups = size.groups // tp
    shared = groups % cp == 0 if groups >= cp else cp % groups == 0
    return size.heads // tp % cp == 0 and shared


def delta_fits(arch: Architecture, ranks: int) -> bool:
    return arch.delta is None or not (arch.delta.groups % ranks or arch.delta.heads % ranks)


def engines_fit(shape: TrainShape) -> bool:
    rollout = shape.rollout
    if rollout is None:
        return True
    gpus = shape.world if rollout.colocated else rollout.nodes * shape.gpus_per_node
    if rollout.engines is not None and (rollout.colocated or rollout.nodes):
        return rollout.engines * rollout.gpus_per_engine == gpus
    return gpus == 0 or gpus % rollout.gpus_per_engine == 0


def engine_divides(arch: Architecture, rollout: RolloutShape) -> bool:
    attention = not arch.count(ATTENTION) or heads_fit(arch, rollout.tp)
    mamba = arch.mamba is None or mamba_fits(arch, rollout.tp, 1)
    delta = arch.delta is None or (arch.delta.groups % rollout.tp == 0 and arch.delta.heads % rollout.tp == 0)
    return attention and mamba and delta


def suits(shape: TrainShape, arch: Architecture | None) -> bool:
    """Whether the grids and the model allow the sizes; `near` prefers such values."""
    grids = not (shape.world % (shape.tp * shape.pp * shape.cp) or shape.world % expert_group(shape))
    if arch is None or not grids:
        return grids
    return (
        (shape.tp <= shape.gpus_per_node or shape.gpus_per_node == RACK_GPUS_PER_NODE)
        and (not arch.count(ATTENTION) or heads_fit(arch, shape.tp))
        and not any(width % shape.tp for width in widths(arch))
        and mamba_fits(arch, shape.tp, shape.cp)
        and delta_fits(arch, shape.tp * shape.cp)
        and (shape.ep == 1 or (arch.experts > 0 and arch.experts % shape.ep == 0))
        and (bool(shape.pipeline_layout) or shape.pp == 1 or layers_fit(shape, len(arch.layers)))
        and (shape.rollout is None or engine_divides(arch, shape.rollout))
    )
