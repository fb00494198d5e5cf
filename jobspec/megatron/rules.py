"""Megatron-Core's rules about sizes, so that they fail before 64 GPUs are up and not after.

A rule looks at a `TrainShape` and, where it is known, at the model. It yields a `Violation` for each broken
condition, with values of single fields that would satisfy it. No rule speaks of what an adapter left out.
Source of line numbers: NVIDIA/Megatron-LM d98e8a64 (2026-08-22), below megatron/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jobspec.finding import Finding, error, warning
from jobspec.megatron.architecture import ATTENTION, DELTA, MAMBA, MLP, Architecture
from jobspec.megatron.shape import RolloutShape, TrainShape

MOST = 4096  # the largest value of a field that is tried; no run has more of anything
RACK_GPUS_PER_NODE = 4  # nodes of a GB200 or GB300 rank have four GPUs and share one NVLink domain


@dataclass(frozen=True)
class Violation:
    """One broken condition. `nearest` maps a field to values of it that satisfy the rule, others unchanged.

    `field` is where the finding points to; `fix` says what to do where no single value helps.
    """

    field: str
    what: str
    nearest: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    fix: str = ""


Check = Callable[[TrainShape, "Architecture | None"], Iterator[Violation]]


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
    return "; ".join(part for part in (f"nearest valid: {text}" if text else "", broken.fix) if part)


def with_value(shape: TrainShape, name: str, value: Any) -> TrainShape:
    """The shape with one field changed; `rollout.tp` is a field of the rollout."""
    if name.startswith("rollout.") and shape.rollout is not None:
        return replace(shape, rollout=replace(shape.rollout, **{name.removeprefix("rollout."): value}))
    return replace(shape, **{name: value})


def _value(shape: TrainShape, name: str) -> int:
    if name.startswith("rollout."):
        return int(getattr(shape.rollout, name.removeprefix("rollout.")) or 1)
    return int(getattr(shape, name) or (shape.expert_tp if name == "etp" else 1))


def _near(
    shape: TrainShape, arch: Architecture | None, valid: Callable[[TrainShape], bool], *names: str
) -> dict[str, tuple[int, ...]]:
    """For each field the closest valid value below and above its own, where there is one.

    Values that break no other rule of the same field come first; without any, those that break one.
    """
    found = {}
    for name in names:
        values = _closest(shape, name, lambda s: valid(s) and _suits(s, arch)) or _closest(shape, name, valid)
        if values:
            found[name] = values
    return found


def _closest(shape: TrainShape, name: str, valid: Callable[[TrainShape], bool]) -> tuple[int, ...]:
    now = _value(shape, name)
    below = (value for value in range(now - 1, 0, -1) if valid(with_value(shape, name, value)))
    above = (value for value in range(now + 1, _most(shape, name)) if valid(with_value(shape, name, value)))
    return tuple(value for value in (next(below, None), next(above, None)) if value is not None)


def _suits(shape: TrainShape, arch: Architecture | None) -> bool:
    """Whether the grids and the model allow the sizes; for the choice among values, so one answer for all."""
    grids = not (shape.world % (shape.tp * shape.pp * shape.cp) or shape.world % _expert_group(shape))
    if arch is None or not grids:
        return grids
    return (
        (shape.tp <= shape.gpus_per_node or shape.gpus_per_node == RACK_GPUS_PER_NODE)
        and (not arch.count(ATTENTION) or _heads_fit(arch, shape.tp))
        and not any(width % shape.tp for width in _widths(arch))
        and _mamba_fits(arch, shape.tp, shape.cp)
        and _delta_fits(arch, shape.tp * shape.cp)
        and (shape.ep == 1 or (arch.experts > 0 and arch.experts % shape.ep == 0))
        and (bool(shape.pipeline_layout) or shape.pp == 1 or _layers_fit(shape, len(arch.layers)))
        and (shape.rollout is None or _engine_divides(arch, shape.rollout))
    )


def _expert_group(shape: TrainShape) -> int:
    return shape.expert_tp * shape.ep * shape.pp


def _widths(arch: Architecture) -> tuple[int, ...]:
    """Widths of feed-forward layers that tensor parallelism divides."""
    return ((arch.ffn,) if arch.count(MLP) else ()) + ((arch.shared_ffn,) if arch.shared_ffn else ())


def _most(shape: TrainShape, name: str) -> int:
    """No degree of parallelism can be larger than the number of GPUs."""
    if name in ("nodes", "gpus_per_node"):
        return _value(shape, name) * 16 + 64
    if name in ("global_batch", "train_batch", "samples_per_prompt", "micro_batch"):
        return _value(shape, name) * 2 + MOST
    return max(shape.world, shape.rollout.nodes * shape.gpus_per_node if shape.rollout else 0) + 1


# -- the grid ----------------------------------------------------------------------------------------


def _world(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    model = shape.tp * shape.pp * shape.cp
    if shape.world % model:
        yield Violation(
            "tp",
            f"{shape.world} GPUs ({shape.nodes} x {shape.gpus_per_node}) do not divide into replicas of "
            f"tp {shape.tp} x pp {shape.pp} x cp {shape.cp} = {model}",
            _near(shape, arch, lambda s: s.world % (s.tp * s.pp * s.cp) == 0, "tp", "pp", "cp", "nodes"),
        )


def _expert_grid(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    group = _expert_group(shape)
    if shape.world % group:
        default = " (its default, tp)" if shape.etp is None else ""
        yield Violation(
            "ep",
            f"{shape.world} GPUs do not divide into expert groups of etp {shape.expert_tp}{default} x "
            f"ep {shape.ep} x pp {shape.pp} = {group}",
            _near(shape, arch, lambda s: s.world % _expert_group(s) == 0, "ep", "etp", "nodes"),
        )


def _tp_in_node(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if shape.tp > shape.gpus_per_node != RACK_GPUS_PER_NODE:
        yield Violation(
            "tp",
            f"tp {shape.tp} spans nodes of {shape.gpus_per_node} GPUs",
            _near(
                shape, arch, lambda s: s.tp <= s.gpus_per_node and s.world % (s.tp * s.pp * s.cp) == 0, "tp"
            ),
        )


# -- layers ------------------------------------------------------------------------------------------


def _given_stages(shape: TrainShape) -> list[tuple[str, int]]:
    pairs = (("first", shape.first_stage_layers), ("last", shape.last_stage_layers))
    return [(name, count) for name, count in pairs if count is not None]


def _layers_fit(shape: TrainShape, layers: int) -> bool:
    """Whether every pipeline stage gets a whole number of layers, and at least one."""
    given = _given_stages(shape)
    extra = int(shape.embedding_in_split) + int(shape.loss_in_split)
    rest = layers + extra - sum(count for _, count in given)
    middle = shape.pp - len(given)
    if any(count < 1 for _, count in given) or middle < 0:
        return False
    return rest == 0 if middle == 0 else rest > 0 and rest % middle == 0


def _layers(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if shape.pp == 1 and _given_stages(shape):
        yield Violation(
            "first_stage_layers",
            "layers of a first or last pipeline stage are given with pp 1",
            fix="leave them out, or use pp > 1",
        )
        return
    if arch is None or shape.pipeline_layout or _layers_fit(shape, len(arch.layers)):
        return
    layers = len(arch.layers)
    given = "".join(f", {name} stage {count}" for name, count in _given_stages(shape))
    yield Violation(
        "pp",
        f"{layers} layers of {arch.name or 'the model'} do not divide over pp {shape.pp}{given}",
        _near(shape, arch, lambda s: _layers_fit(s, layers), "pp"),
        fix=_uneven(shape, layers),
    )


def _uneven(shape: TrainShape, layers: int) -> str:
    """Sizes of the last stage, or of both ends, that make the asked number of stages possible."""
    plain = replace(shape, first_stage_layers=None, last_stage_layers=None)
    even = -(-layers // shape.pp)
    # The last stage has the output layer besides: rather fewer layers than the others.
    for size in sorted(range(1, layers), key=lambda count: (count > even, abs(count - even))):
        if _layers_fit(replace(plain, last_stage_layers=size), layers):
            return f"or keep pp {shape.pp} with {size} layers on the last stage"
    return ""


def _virtual(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
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
            fix="leave vpp out; a hybrid model needs segments in its layer pattern for it",
        )
        return
    layers = len(arch.layers)
    if _layers_fit(shape, layers) and not _chunks_fit(shape, layers):
        yield Violation(
            "vpp",
            f"{_stage_counts(shape, layers)} layers of a pipeline rank do not divide into vpp {shape.vpp}",
            _near(shape, arch, lambda s: s.vpp != 1 and _chunks_fit(s, layers), "vpp"),
            fix="or leave vpp out",
        )


def _stage_counts(shape: TrainShape, layers: int) -> str:
    counts = [count for _, count in _given_stages(shape)]
    middle = shape.pp - len(counts)
    counts += [(layers - sum(counts)) // middle] if middle else []
    return ", ".join(str(count) for count in sorted(set(counts)))


def _chunks_fit(shape: TrainShape, layers: int) -> bool:
    vpp = shape.vpp or 1
    given = _given_stages(shape)
    extra = int(shape.embedding_in_split) + int(shape.loss_in_split)
    rest = layers + extra - sum(count for _, count in given)
    middle = shape.pp - len(given)
    return all(count % vpp == 0 for _, count in given) and (not middle or rest // middle % vpp == 0)


def _no_virtual(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if shape.framework == "skyrl" and shape.vpp not in (None, 1):
        yield Violation("vpp", f"vpp {shape.vpp} with `skyrl`", fix="leave vpp out")


# -- width -------------------------------------------------------------------------------------------


def _heads(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if arch is not None and arch.count(ATTENTION) and not _heads_fit(arch, shape.tp):
        groups = "" if arch.mla else f" and {arch.kv_groups} key-value groups"
        yield Violation(
            "tp",
            f"{arch.heads} attention heads{groups} do not divide over tp {shape.tp}",
            _near(shape, arch, lambda s: _heads_fit(arch, s.tp), "tp"),
        )


def _heads_fit(arch: Architecture, tp: int) -> bool:
    shared = arch.mla is not None or arch.kv_groups % tp == 0 or tp % arch.kv_groups == 0
    return arch.heads % tp == 0 and shared


def _mlp_width(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if arch is None:
        return
    for width in _widths(arch):
        if width % shape.tp:
            near = _near(shape, arch, lambda s, width=width: width % s.tp == 0, "tp")  # type: ignore[misc]
            yield Violation("tp", f"a feed-forward width of {width} does not divide over tp {shape.tp}", near)
    if arch.experts and arch.moe_ffn % shape.expert_tp:
        yield Violation(
            "etp",
            f"the experts' width of {arch.moe_ffn} does not divide over etp {shape.expert_tp}",
            _near(shape, arch, lambda s: arch.moe_ffn % s.expert_tp == 0, "etp"),
        )


def _mamba(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if arch is None or arch.mamba is None or not arch.count(MAMBA):
        return
    if not _mamba_fits(arch, shape.tp, 1):
        yield Violation(
            "tp",
            f"{arch.mamba.heads} Mamba heads in {arch.mamba.groups} groups do not divide over tp {shape.tp}",
            _near(shape, arch, lambda s: _mamba_fits(arch, s.tp, 1), "tp"),
        )
    elif not _mamba_fits(arch, shape.tp, shape.cp):
        yield Violation(
            "cp",
            f"{arch.mamba.heads // shape.tp} Mamba heads and {arch.mamba.groups // shape.tp} groups of a "
            f"rank of tp {shape.tp} do not divide over cp {shape.cp}",
            _near(shape, arch, lambda s: _mamba_fits(arch, s.tp, s.cp), "cp", "tp"),
        )


def _mamba_fits(arch: Architecture, tp: int, cp: int) -> bool:
    size = arch.mamba
    if size is None:
        return True
    if size.heads % tp or size.groups % tp or size.heads % size.groups:
        return False
    groups = size.groups // tp
    shared = groups % cp == 0 if groups >= cp else cp % groups == 0
    return size.heads // tp % cp == 0 and shared


def _delta(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if arch is None or arch.delta is None or not arch.count(DELTA):
        return
    size = arch.delta
    if not _delta_fits(arch, shape.tp * shape.cp):
        yield Violation(
            "tp",
            f"{size.groups} key heads and {size.heads} value heads of linear attention do not divide over "
            f"tp {shape.tp} x cp {shape.cp}",
            _near(shape, arch, lambda s: _delta_fits(arch, s.tp * s.cp), "tp", "cp"),
        )


def _delta_fits(arch: Architecture, ranks: int) -> bool:
    return arch.delta is None or not (arch.delta.groups % ranks or arch.delta.heads % ranks)


def _experts(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
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
            _near(shape, arch, lambda s: arch.experts % s.ep == 0, "ep"),
        )


# -- sequences ---------------------------------------------------------------------------------------


def _sequence_parallel(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if shape.sequence_parallel is False and shape.ep > 1 and shape.tp > 1:
        yield Violation(
            "sequence_parallel",
            f"ep {shape.ep} with tp {shape.tp} and without sequence parallelism",
            {"sequence_parallel": (True,)},
        )


def _sequence_alone(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if shape.sequence_parallel and shape.tp == 1:
        yield Violation(
            "sequence_parallel", "sequence parallelism with tp 1", {"sequence_parallel": (False,)}
        )


def _context(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if shape.cp == 1:
        return
    if shape.packed is False and shape.framework in ("skyrl", "nemo_rl"):
        yield Violation(
            "packed", f"cp {shape.cp} without packed sequences", fix="turn packing on, or use cp 1"
        )
    elif not shape.framework and shape.seq_length and shape.seq_length % (2 * shape.cp):
        yield Violation(
            "seq_length",
            f"sequences of {shape.seq_length} tokens do not divide over 2 x cp {shape.cp}",
            _near(shape, arch, lambda s: (s.seq_length or 0) % (2 * s.cp) == 0, "cp"),
            fix=f"or pad sequences to a multiple of {2 * shape.cp}",
        )


def _recompute(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    asked = shape.recompute
    if asked is None:
        return
    if asked.granularity == "full" and (not asked.method or not asked.layers):
        missing = "a method" if not asked.method else "a number of layers"
        yield Violation(
            "recompute",
            f"full recomputation without {missing}",
            fix="use method `uniform` and 1 layer",
        )
    if asked.granularity == "selective" and asked.layers:
        yield Violation(
            "recompute",
            f"selective recomputation with a number of layers ({asked.layers})",
            fix="leave the number of layers out, or use full recomputation",
        )


# -- batches -----------------------------------------------------------------------------------------


def _batch_dp(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if shape.global_batch and shape.dp and shape.global_batch % shape.dp:
        yield Violation(
            "global_batch",
            f"{shape.global_batch} samples of an optimizer step do not divide over {shape.dp} "
            "data-parallel ranks",
            _near(shape, arch, lambda s: (s.global_batch or 0) % s.dp == 0, "global_batch"),
        )


def _batch_micro(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if not shape.global_batch or not shape.micro_batch or not shape.dp or shape.tokens_per_microbatch:
        return
    each = shape.global_batch // shape.dp
    if each % shape.micro_batch and not shape.packed:
        yield Violation(
            "micro_batch",
            f"{each} samples of a data-parallel rank do not divide into micro-batches of {shape.micro_batch}",
            _near(shape, arch, lambda s: each % (s.micro_batch or 1) == 0, "micro_batch"),
        )


def _batch_steps(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if not shape.global_batch or not shape.train_batch:
        return
    made = shape.train_batch * shape.samples_per_prompt
    if made % shape.global_batch:
        yield Violation(
            "global_batch",
            f"{made} samples of a step ({shape.train_batch} prompts x {shape.samples_per_prompt}) do not "
            f"divide into optimizer steps of {shape.global_batch}",
            _near(shape, arch, lambda s: made % (s.global_batch or 1) == 0, "global_batch"),
        )


# -- engines -----------------------------------------------------------------------------------------


def _engines_fit(shape: TrainShape) -> bool:
    rollout = shape.rollout
    if rollout is None:
        return True
    gpus = shape.world if rollout.colocated else rollout.nodes * shape.gpus_per_node
    if rollout.engines is not None and (rollout.colocated or rollout.nodes):
        return rollout.engines * rollout.gpus_per_engine == gpus
    return gpus == 0 or gpus % rollout.gpus_per_engine == 0


def _placement(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    rollout = shape.rollout
    if rollout is None or _engines_fit(shape):
        return
    gpus = shape.world if rollout.colocated else rollout.nodes * shape.gpus_per_node
    engines = f"{rollout.engines} engines" if rollout.engines is not None else "engines"
    place = "the trainer's" if rollout.colocated else "the generation nodes'"
    yield Violation(
        "rollout.engines" if rollout.engines is not None else "rollout.tp",
        f"{engines} of tp {rollout.tp} x pp {rollout.pp} x dp {rollout.dp} do not fill {place} {gpus} GPUs",
        _near(
            shape,
            arch,
            _engines_fit,
            *(["rollout.engines"] if rollout.engines else []),
            "rollout.tp",
            "rollout.pp",
        ),
    )


def _engine_experts(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    rollout = shape.rollout
    if rollout is not None and shape.framework == "skyrl" and 1 < rollout.ep != rollout.dp * rollout.tp:
        yield Violation(
            "rollout.ep",
            f"an engine's ep {rollout.ep} is not its dp {rollout.dp} x tp {rollout.tp}",
            {"rollout.ep": (rollout.dp * rollout.tp,)},
        )


def _engine_node(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    rollout = shape.rollout
    if rollout is not None and rollout.executor == "mp" and rollout.tp * rollout.pp > shape.gpus_per_node:
        yield Violation(
            "rollout.tp",
            f"an engine of tp {rollout.tp} x pp {rollout.pp} exceeds a node's {shape.gpus_per_node} GPUs",
            _near(
                shape,
                arch,
                lambda s: s.rollout is not None and s.rollout.tp * s.rollout.pp <= s.gpus_per_node,
                "rollout.tp",
                "rollout.pp",
            ),
            fix="or use executor `ray`",
        )


def _engine_heads(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    rollout = shape.rollout
    if arch is None or rollout is None or _engine_divides(arch, rollout):
        return
    yield Violation(
        "rollout.tp",
        f"heads of {arch.name or 'the model'} do not divide over an engine's tp {rollout.tp}",
        _near(
            shape, arch, lambda s: s.rollout is not None and _engine_divides(arch, s.rollout), "rollout.tp"
        ),
    )


def _engine_divides(arch: Architecture, rollout: RolloutShape) -> bool:
    attention = not arch.count(ATTENTION) or _heads_fit(arch, rollout.tp)
    mamba = arch.mamba is None or _mamba_fits(arch, rollout.tp, 1)
    delta = arch.delta is None or (arch.delta.groups % rollout.tp == 0 and arch.delta.heads % rollout.tp == 0)
    return attention and mamba and delta


RULES: tuple[Rule, ...] = (
    Rule(
        "megatron.world",
        "GPUs % (tp x pp x cp) == 0; the quotient is the data-parallel size",
        "core/parallel_state.py:815",
        _world,
    ),
    Rule(
        "megatron.expert-grid",
        "GPUs % (etp x ep x pp) == 0; cp is no factor of the experts' grid, and etp is tp unless given",
        "core/parallel_state.py:871",
        _expert_grid,
    ),
    Rule(
        "megatron.tp-node",
        "tensor parallelism communicates in every layer and belongs inside an NVLink domain",
        "Megatron-Core's user guide, parallelism strategies",
        _tp_in_node,
        is_error=False,
    ),
    Rule(
        "megatron.experts",
        "experts % ep == 0, and ep > 1 needs experts",
        "core/transformer/moe/moe_layer.py:186, core/transformer/transformer_config.py:1595",
        _experts,
    ),
    Rule(
        "megatron.layers",
        "stages without a given number of layers share the rest evenly, and none is empty",
        "core/transformer/transformer_config.py:2296, core/models/hybrid/hybrid_layer_allocation.py:331",
        _layers,
    ),
    Rule(
        "megatron.vpp",
        "vpp needs pp > 1 and divides the layers of every pipeline rank",
        "core/transformer/transformer_config.py:2296",
        _virtual,
    ),
    Rule(
        "megatron.vpp-skyrl",
        "SkyRL's checkpoints have one model chunk on a rank: with vpp it trains and fails at its first save",
        "SkyRL main a9564572",
        _no_virtual,
    ),
    Rule(
        "megatron.heads",
        "heads % tp == 0, and the key-value groups divide over tp or tp over them",
        "core/transformer/transformer_config.py:1446",
        _heads,
    ),
    Rule(
        "megatron.ffn",
        "feed-forward widths % tp == 0, and the experts' width % etp == 0",
        "core/tensor_parallel/layers.py (divide)",
        _mlp_width,
    ),
    Rule(
        "megatron.mamba",
        "Mamba heads and groups % tp == 0; with cp, a rank's heads % cp == 0 and its groups fit cp",
        "core/ssm/mamba_mixer.py:262, core/ssm/mamba_context_parallel.py:106",
        _mamba,
    ),
    Rule(
        "megatron.linear-attention",
        "key heads and value heads of linear attention % (tp x cp) == 0",
        "core/transformer/transformer_config.py:1501",
        _delta,
    ),
    Rule(
        "megatron.sequence-parallel",
        "experts with tp > 1 need sequence parallelism",
        "core/model_parallel_config.py",
        _sequence_parallel,
    ),
    # Not an error: a published recipe of NeMo RL has it, and sets it where Megatron-Core does not look again.
    Rule(
        "megatron.sequence-parallel-tp1",
        "sequence parallelism needs tp > 1; Megatron-Core refuses it where its configuration is made",
        "core/model_parallel_config.py",
        _sequence_alone,
        is_error=False,
    ),
    Rule(
        "megatron.context-parallel",
        "a sequence is cut into 2 x cp pieces, and an RL framework does so with packed sequences only",
        "training/arguments.py:1335, SkyRL's validate_megatron_cfg, NeMo RL's Megatron setup",
        _context,
    ),
    Rule(
        "megatron.recompute",
        "full recomputation needs a method and a number of layers, selective must not have one",
        "core/transformer/transformer_config.py",
        _recompute,
    ),
    Rule(
        "megatron.batch-dp",
        "samples of an optimizer step % data-parallel size == 0",
        "core/num_microbatches_calculator.py",
        _batch_dp,
    ),
    Rule(
        "megatron.batch-micro",
        "samples of a data-parallel rank % micro-batch == 0 where micro-batches are not filled by tokens",
        "core/num_microbatches_calculator.py",
        _batch_micro,
    ),
    Rule(
        "megatron.batch-steps",
        "samples of a step % samples of an optimizer step == 0",
        "SkyRL's validate_batch_sizes; samples that do not fill an optimizer step are dropped or an error",
        _batch_steps,
    ),
    Rule(
        "megatron.placement",
        "engines x their tp x pp x dp fill the trainer's GPUs when colocated, and their own nodes when not",
        "SkyRL's validate_cfg; NeMo RL's and verl's worker groups",
        _placement,
    ),
    Rule(
        "megatron.engine-experts",
        "an engine's ep is 1 or its dp x tp",
        "SkyRL's validate_generator_cfg; vLLM derives it so",
        _engine_experts,
    ),
    Rule(
        "megatron.engine-node",
        "vLLM's `mp` executor keeps an engine inside one node",
        "SkyRL's validate_cfg; vLLM, distributed serving",
        _engine_node,
    ),
    Rule(
        "megatron.engine-heads",
        "attention heads, key-value groups, Mamba groups and linear-attention heads fit an engine's tp",
        "vLLM, model_executor/layers",
        _engine_heads,
    ),
)


def check_shape(shape: TrainShape, arch: Architecture | None) -> tuple[Finding, ...]:
    """Every rule that a shape breaks; without an architecture only those that need none."""
    return tuple(finding for rule in RULES for finding in rule.findings(shape, arch))


def is_valid(shape: TrainShape, arch: Architecture | None) -> bool:
    """Whether no rule finds an error, at the price of the first that does."""
    return not any(next(rule.check(shape, arch), None) for rule in RULES if rule.is_error)
