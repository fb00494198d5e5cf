"""Rules about the grid of GPUs and about the model's layers and widths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jobspec.megatron.architecture import ATTENTION, DELTA, MAMBA, Architecture
from jobspec.megatron.fits import (
    RACK_GPUS_PER_NODE,
    chunks_fit,
    delta_fits,
    expert_group,
    given_stages,
    heads_fit,
    layers_fit,
    mamba_fits,
    widths,
)
from jobspec.megatron.shape import TrainShape
from jobspec.megatron.violation import Violation, near


def check_world(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    model = shape.tp * shape.pp * shape.cp
    if shape.world % model:
        yield Violation(
            "tp",
            f"{shape.world} GPUs ({shape.nodes} x {shape.gpus_per_node}) do not divide into replicas of "
            f"tp {shape.tp} x pp {shape.pp} x cp {shape.cp} = {model}",
            near(shape, arch, lambda s: s.world % (s.tp * s.pp * s.cp) == 0, "tp", "pp", "cp", "nodes"),
        )


def check_expert_grid(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    group = expert_group(shape)
    if shape.world % group:
        default = " (its default, tp)" if shape.etp is None else ""
        yield Violation(
            "ep",
            f"{shape.world} GPUs do not divide into expert groups of etp {shape.expert_tp}{default} x "
            f"ep {shape.ep} x pp {shape.pp} = {group}",
            near(shape, arch, lambda s: s.world % expert_group(s) == 0, "ep", "etp", "nodes"),
        )


def check_tp_in_node(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if shape.tp > shape.gpus_per_node != RACK_GPUS_PER_NODE:
        yield Violation(
            "tp",
            f"tp {shape.tp} spans nodes of {shape.gpus_per_node} GPUs",
            near(
                shape, arch, lambda s: s.tp <= s.gpus_per_node and s.world % (s.tp * s.pp * s.cp) == 0, "tp"
            ),
        )


def check_layers(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if shape.pp == 1 and given_stages(shape):
        yield Violation(
            "first_stage_layers",
            "layers of a first or last pipeline stage are given with pp 1",
            fix="leave them out, or use pp > 1",
        )
        return
    if arch is None or shape.pipeline_layout or layers_fit(shape, len(arch.layers)):
        return
    layers = len(arch.layers)
    fixed = "".join(f", {name} stage {count}" for name, count in given_stages(shape))
    yield Violation(
        "pp",
        f"{layers} layers of {arch.name or 'the model'} do not divide over pp {shape.pp}{fixed}",
        near(shape, arch, lambda s: layers_fit(s, layers), "pp"),
        fix=_uneven(shape, layers),
    )


def _uneven(shape: TrainShape, layers: int) -> str:
    """Sizes of the last stage, or of both ends, that make the given number of stages possible."""
    plain = replace(shape, first_stage_layers=None, last_stage_layers=None)
    even = -(-layers // shape.pp)
    # The last stage also has the output layer, so fewer layers than the others are better.
    for size in sorted(range(1, layers), key=lambda count: (count > even, abs(count - even))):
        if layers_fit(replace(plain, last_stage_layers=size), layers):
            return f"or keep pp {shape.pp} with {size} layers on the last stage"
    return ""


def check_virtual(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if shape.vpp is None or shape.vpp == 1:
        return
    if shape.pp == 1:
        yield Violation("vpp", f"vpp {shape.vpp} with pp 1", fix="leave vpp out, or use pp > 1")
        return
    if arch is None or shape.pipeline_layout:
        return
    if arch.hybrid:
        yield Violation(
            "vpp",
            f"vpp {shape.vpp} with the hybrid layers of {arch.name or 'the model'}",
            fix="leave vpp out: the layer pattern of a hybrid model needs segments for vpp",
        )
        return
    layers = len(arch.layers)
    if layers_fit(shape, layers) and not chunks_fit(shape, layers):
        yield Violation(
            "vpp",
            f"{_stage_counts(shape, layers)} layers of a pipeline rank do not divide into vpp {shape.vpp}",
            near(shape, arch, lambda s: s.vpp != 1 and chunks_fit(s, layers), "vpp"),
            fix="or leave vpp out",
        )


def _stage_counts(shape: TrainShape, layers: int) -> str:
    counts = [count for _, count in given_stages(shape)]
    middle = shape.pp - len(counts)
    counts += [(layers - sum(counts)) // middle] if middle else []
    return ", ".join(str(count) for count in sorted(set(counts)))


def check_no_virtual(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if shape.framework == "skyrl" and shape.vpp not in (None, 1):
        yield Violation("vpp", f"vpp {shape.vpp} with `skyrl`", fix="leave vpp out")


def check_heads(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if arch is not None and arch.count(ATTENTION) and not heads_fit(arch, shape.tp):
        groups = "" if arch.mla else f" and {arch.kv_groups} key-value groups"
        yield Violation(
            "tp",
            f"{arch.heads} attention heads{groups} do not divide over tp {shape.tp}",
            near(shape, arch, lambda s: heads_fit(arch, s.tp), "tp"),
        )


def check_mlp_width(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if arch is None:
        return
    odd = [width for width in widths(arch) if width % shape.tp]
    if odd:
        yield Violation(
            "tp",
            f"a feed-forward width of {odd[0]} does not divide over tp {shape.tp}",
            near(shape, arch, lambda s: not any(width % s.tp for width in widths(arch)), "tp"),
        )
    if arch.experts and arch.moe_ffn % shape.expert_tp:
        yield Violation(
            "etp",
            f"the experts' width of {arch.moe_ffn} does not divide over etp {shape.expert_tp}",
            near(shape, arch, lambda s: arch.moe_ffn % s.expert_tp == 0, "etp"),
        )


def check_mamba(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if arch is None or arch.mamba is None or not arch.count(MAMBA):
        return
    if not mamba_fits(arch, shape.tp, 1):
        yield Violation(
            "tp",
            f"{arch.mamba.heads} Mamba heads in {arch.mamba.groups} groups do not divide over tp {shape.tp}",
            near(shape, arch, lambda s: mamba_fits(arch, s.tp, 1), "tp"),
        )
    elif not mamba_fits(arch, shape.tp, shape.cp):
        yield Violation(
            "cp",
            f"{arch.mamba.heads // shape.tp} Mamba heads and {arch.mamba.groups // shape.tp} groups of a "
            f"rank of tp {shape.tp} do not divide over cp {shape.cp}",
            near(shape, arch, lambda s: mamba_fits(arch, s.tp, s.cp), "cp", "tp"),
        )


def check_delta(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if arch is None or arch.delta is None or not arch.count(DELTA):
        return
    size = arch.delta
    if not delta_fits(arch, shape.tp * shape.cp):
        yield Violation(
            "tp",
            f"{size.groups} key heads and {size.heads} value heads of linear attention do not divide over "
            f"tp {shape.tp} x cp {shape.cp}",
            near(shape, arch, lambda s: delta_fits(arch, s.tp * s.cp), "tp", "cp"),
        )


def check_experts(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if arch is None or shape.ep == 1:
        return
    if not arch.experts:
        yield Violation(
            "ep", f"ep {shape.ep} with {arch.name or 'a model'} that has no experts", {"ep": (1,)}
        )
    elif arch.experts % shape.ep:
        yield Violation(
            "ep",
            f"{arch.experts} experts do not divide over ep {shape.ep}",
            near(shape, arch, lambda s: arch.experts % s.ep == 0, "ep"),
        )
