"""How many parameters a model has, and how many of them a GPU of each pipeline stage holds.

Tensor parallelism divides matrices; norms, routers and projections to a latent width are whole on every
rank; routed experts are divided by their own tensor and expert parallel sizes.
Source: Megatron-Core 0.16 (transformer_layer.py, moe/experts.py, moe/moe_layer.py, ssm/mamba_mixer.py).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from jobspec.megatron.architecture import ATTENTION, DELTA, MAMBA, MLP, MOE, Architecture
from jobspec.megatron.shape import TrainShape


@dataclass(frozen=True)
class Weights:
    """Numbers of parameters: `sharded` over tensor-parallel ranks, `whole` on each, `expert`s."""

    sharded: int = 0
    whole: int = 0
    expert: int = 0

    def __add__(self, other: Weights) -> Weights:
        return Weights(self.sharded + other.sharded, self.whole + other.whole, self.expert + other.expert)

    @property
    def total(self) -> int:
        return self.sharded + self.whole + self.expert


@dataclass(frozen=True)
class Stage:
    """One pipeline stage: its layers, and whether it holds the embedding and the output layer."""

    index: int
    layers: tuple[str, ...]
    first: bool
    last: bool


def layer_weights(arch: Architecture, word: str) -> Weights:
    total = Weights()
    for block in word:
        total += _BLOCKS[block](arch)
    return total


def _attention(arch: Architecture) -> Weights:
    hidden = arch.hidden
    if arch.mla is None:
        query = arch.heads * arch.head_dim * (2 if arch.output_gate else 1)
        rows = query + 2 * arch.kv_groups * arch.head_dim
        return Weights(hidden * (rows + arch.heads * arch.head_dim), hidden)
    mla = arch.mla
    head = mla.nope_dim + mla.rope_dim
    down = hidden * (mla.q_rank + mla.kv_rank + mla.rope_dim)
    up = (mla.q_rank or hidden) * arch.heads * head + mla.kv_rank * arch.heads * (mla.nope_dim + mla.v_dim)
    return Weights(up + arch.heads * mla.v_dim * hidden, down + hidden)


def _mlp(arch: Architecture) -> Weights:
    return Weights((3 if arch.gated else 2) * arch.hidden * arch.ffn, arch.hidden)


def _moe(arch: Architecture) -> Weights:
    matrices = 3 if arch.gated else 2
    width = arch.latent or arch.hidden
    routed = arch.experts * matrices * width * arch.moe_ffn
    latent = 2 * arch.hidden * arch.latent
    return Weights(
        matrices * arch.hidden * arch.shared_ffn, arch.hidden * (arch.experts + 1) + latent, routed
    )


def _mamba(arch: Architecture) -> Weights:
    size = arch.mamba
    if size is None:
        return Weights()
    inner, groups = size.heads * size.head_dim, 2 * size.groups * size.state
    columns = 2 * inner + groups + size.heads
    return Weights(arch.hidden * (columns + inner) + size.conv * (inner + groups), arch.hidden)


def _delta(arch: Architecture) -> Weights:
    size = arch.delta
    if size is None:
        return Weights()
    values, keys = size.heads * size.head_dim, size.groups * size.state
    columns = 2 * keys + 2 * values + 2 * size.heads
    return Weights(arch.hidden * (columns + values) + size.conv * (2 * keys + values), arch.hidden)


_BLOCKS = {ATTENTION: _attention, MLP: _mlp, MOE: _moe, MAMBA: _mamba, DELTA: _delta}


def model_weights(arch: Architecture) -> Weights:
    """The whole model, without layers that only predict further tokens (MTP)."""
    tables = 1 if arch.tied else 2
    return Weights(tables * arch.vocab * arch.hidden, arch.hidden) + _layers_weights(arch, arch.layers)


def _layers_weights(arch: Architecture, layers: tuple[str, ...]) -> Weights:
    """Layers of the same word are alike, so each word is counted once and multiplied."""
    total = Weights()
    for word, count in Counter(layers).items():
        layer = layer_weights(arch, word)
        total += Weights(count * layer.sharded, count * layer.whole, count * layer.expert)
    return total


def stages(arch: Architecture, shape: TrainShape) -> tuple[Stage, ...]:
    """The layers of every pipeline stage; a split that the rules refuse becomes as even as possible."""
    counts = _stage_sizes(len(arch.layers), shape)
    split, start = [], 0
    for index, count in enumerate(counts):
        layers = arch.layers[start : start + count]
        split.append(Stage(index, layers, index == 0, index == len(counts) - 1))
        start += count
    return tuple(split)


def _stage_sizes(layers: int, shape: TrainShape) -> list[int]:
    first = shape.first_stage_layers
    last = shape.last_stage_layers if shape.pp > 1 else None
    if shape.pp == 1:
        return [layers]
    fixed = sum(count for count in (first, last) if count is not None)
    middle = shape.pp - sum(count is not None for count in (first, last))
    extra = int(shape.embedding_in_split) + int(shape.loss_in_split)
    sizes = _even(max(0, layers - fixed) + extra, middle) if middle else []
    if first is not None:
        sizes = [first, *sizes]
    elif shape.embedding_in_split and sizes:
        sizes[0] -= 1
    if last is not None:
        sizes = [*sizes, last]
    elif shape.loss_in_split and sizes:
        sizes[-1] -= 1
    return sizes


def _even(count: int, parts: int) -> list[int]:
    low, more = divmod(count, parts)
    return [low + (index < more) for index in range(parts)]


def stage_weights(arch: Architecture, shape: TrainShape, stage: Stage) -> Weights:
    """All parameters of a stage, before division over tensor and expert parallel ranks."""
    total = _layers_weights(arch, stage.layers)
    table = Weights(padded_vocab(arch, shape.tp) * arch.hidden)
    if stage.first:
        total += table
    if stage.last:
        total += Weights(0, arch.hidden)
        # A tied output layer shares the table on one stage and needs a copy of it on another.
        if not arch.tied or not stage.first:
            total += table
        count = len(arch.mtp) if shape.mtp_layers is None else shape.mtp_layers
        for word in arch.mtp[:count]:
            total += layer_weights(arch, word) + Weights(0, 2 * arch.hidden * arch.hidden)
    return total


def padded_vocab(arch: Architecture, tp: int) -> int:
    """Megatron pads the vocabulary to a multiple of 128 times the tensor parallel size."""
    unit = 128 * tp
    return -(-arch.vocab // unit) * unit


def gpu_weights(arch: Architecture, shape: TrainShape, stage: Stage) -> tuple[int, int]:
    """Parameters of one GPU of a stage: outside the routed experts, and in them."""
    whole = stage_weights(arch, shape, stage)
    return whole.sharded // shape.tp + whole.whole, whole.expert // (shape.expert_tp * shape.ep)


def adapter_weights(arch: Architecture, shape: TrainShape, stage: Stage) -> int:
    """Parameters of LoRA adapters on one GPU of a stage: every matrix has two of them, of rank `lora_rank`.

    An upper bound: Megatron-Bridge's defaults adapt attention, feed-forward and Mamba matrices, and half of
    each adapter is whole on a tensor-parallel rank. The estimate counts all of it as whole.
    """
    return shape.lora_rank * sum(_adapted(arch, shape, block) for word in stage.layers for block in word)


def _adapted(arch: Architecture, shape: TrainShape, block: str) -> int:
    """Sum of input and output widths of a block's adapted matrices."""
    hidden, up = arch.hidden, 2 if arch.gated else 1
    if block == MLP:
        return 2 * hidden + (up + 1) * arch.ffn
    if block == MOE:
        each = 2 * (arch.latent or hidden) + (up + 1) * arch.moe_ffn
        return each * arch.experts // shape.ep + 2 * hidden + (up + 1) * arch.shared_ffn
    # Attention of any kind has an input and an output matrix; their rows are those of its weights.
    return 2 * hidden + _BLOCKS[block](arch).sharded // hidden
