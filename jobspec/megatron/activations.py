"""Bytes of activations that one token of a micro-batch needs in a layer, on one GPU.

`saved` is what autograd keeps of a block from forward to backward. `passing` exists beside it while the
block's backward runs: gradients of its widest tensors, and sequences gathered over tensor-parallel ranks.
Both count the bf16 tensors that Megatron-Core makes with Transformer Engine and flash attention: there are no
attention scores. Sequence parallelism divides tensors as wide as `hidden`, tensor parallelism the others.
Source: V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022);
Megatron-Core 0.16, transformer/moe/experts.py and ssm/mamba_mixer.py, for experts and Mamba.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jobspec.megatron.architecture import ATTENTION, DELTA, MAMBA, MLP, MOE, Architecture, Recurrent
from jobspec.megatron.routing import routing_imbalance
from jobspec.megatron.shape import TrainShape

BF16, FP32 = 2, 4
MAMBA_CHUNK = 128  # tokens between two states that the scan of Mamba-2 keeps
# Unfused attention, bytes of one score. Kept: its fp32 softmax and bf16 probability. While a layer's backward
# runs, also gradients of the probability (bf16), the softmax, the masked and the scaled score (fp32).
# Source: Megatron-Core, fusions/fused_softmax.py, `forward_torch_softmax`.
SCORE_KEPT, SCORE_BACKWARD = 6, 20
DELTA_CHUNK = 64  # the same of the gated delta rule


@dataclass(frozen=True)
class TokenBytes:
    """Bytes per token of a micro-batch on one GPU."""

    saved: float = 0.0
    passing: float = 0.0

    def __add__(self, other: TokenBytes) -> TokenBytes:
        """Blocks of a layer run one after the other: kept tensors add up, passing ones do not."""
        return TokenBytes(self.saved + other.saved, max(self.passing, other.passing))


def layer_bytes(arch: Architecture, shape: TrainShape, word: str) -> TokenBytes:
    total = TokenBytes()
    for block in word:
        total += _BLOCKS[block](arch, shape)
    return total


def input_bytes(arch: Architecture, shape: TrainShape) -> float:
    """A layer's input: what full recomputation keeps of it."""
    return BF16 * arch.hidden / _rows_split(shape)


def logits_bytes(arch: Architecture, shape: TrainShape, vocab: int) -> float:
    """Logits and their gradient, in fp32: Megatron-Core casts what leaves its last stage.

    All at once, log-softmax and softmax exist beside them; in chunks, only the chunks' gradients and their
    concatenation do. A fused loss makes no logits. Source: NeMo RL's and SkyRL's DistributedLogprob.
    """
    if shape.fused_logprobs:
        return 0.0
    return (3 if shape.logits_chunk else 4) * FP32 * vocab / shape.tp


def _rows_split(shape: TrainShape) -> int:
    return shape.tp if shape.sp else 1


def _entry(arch: Architecture, shape: TrainShape) -> float:
    """A block's input and its normalised copy."""
    return 2 * BF16 * arch.hidden / _rows_split(shape)


def _gathered(arch: Architecture, shape: TrainShape) -> float:
    """A whole sequence of hidden states and its gradient, where a sequence-parallel block gathers them."""
    return 2 * BF16 * arch.hidden


def _attention(arch: Architecture, shape: TrainShape) -> TokenBytes:
    if arch.mla is not None:
        head = arch.mla.nope_dim + arch.mla.rope_dim
        wide = arch.heads * (2 * head + 2 * arch.mla.v_dim + arch.mla.nope_dim) / shape.tp
        narrow = (2 * arch.mla.q_rank + 2 * arch.mla.kv_rank + arch.mla.rope_dim) / _rows_split(shape)
    else:
        query, keys = (
            arch.heads * arch.head_dim,
            max(1, arch.kv_groups // shape.tp) * shape.tp * arch.head_dim,
        )
        # Projected, rotated, and the result; a gate is one more tensor of the query's width.
        wide = (3 * query + 3 * keys + (query if arch.output_gate else 0)) / shape.tp
        narrow = 0.0
    tensors = BF16 * wide
    scores = _scores(arch, shape)
    saved = _entry(arch, shape) + tensors + BF16 * narrow + scores.saved
    return TokenBytes(saved, _gathered(arch, shape) + tensors + scores.passing)


def _scores(arch: Architecture, shape: TrainShape) -> TokenBytes:
    """What attention without flash kernels keeps of one token: a row of scores for every head."""
    if shape.attention != "unfused":
        return TokenBytes()
    row = arch.heads * (shape.seq_length or 0) / shape.tp / shape.cp
    recompute = shape.recompute
    redone = (
        recompute is not None and recompute.granularity == "selective" and "core_attn" in recompute.modules
    )
    kept = 0 if redone else SCORE_KEPT
    return TokenBytes(row * kept, row * (SCORE_BACKWARD - kept))


def _mlp(arch: Architecture, shape: TrainShape) -> TokenBytes:
    tensors = BF16 * (3 if arch.gated else 2) * arch.ffn / shape.tp
    return TokenBytes(_entry(arch, shape) + tensors, _gathered(arch, shape) + tensors)


def _moe(arch: Architecture, shape: TrainShape) -> TokenBytes:
    """Experts' rows are tokens times top-k, and more on the busiest rank. Expert-tensor ranks share all rows.

    A rank keeps its experts' input and the tensors of their activation. While the backward runs, the result,
    its gradient and two copies of the sent tokens exist beside them.
    """
    sent = arch.topk / _rows_split(shape)
    rows = sent * routing_imbalance(arch, shape) * shape.expert_tp
    width, ffn = arch.latent or arch.hidden, arch.moe_ffn / shape.expert_tp
    router = 3 * FP32 * arch.experts / _rows_split(shape)
    if arch.gated:  # fused: both halves and their product, and the gradients of these
        kept, passing = BF16 * 3 * ffn, BF16 * 3 * ffn
    else:
        # Squared ReLU by PyTorch's own operations: its result, the square and its product with the router's
        # fp32 probabilities in bf16; backward makes that product's gradient and two factors of it in fp32.
        kept, passing = BF16 * 3 * ffn, FP32 * 3 * ffn
    shared = BF16 * (3 if arch.gated else 2) * arch.shared_ffn / shape.tp
    return TokenBytes(
        _entry(arch, shape) + router + rows * (BF16 * width + kept) + shared,
        _gathered(arch, shape) + rows * (BF16 * 2 * width + passing) + sent * BF16 * 2 * width,
    )


def _recurrent(arch: Architecture, shape: TrainShape, size: Recurrent, chunk: int, keys: int) -> TokenBytes:
    inner = size.heads * size.head_dim
    mixed = inner + keys * size.groups * size.state
    states = FP32 * inner * size.state / chunk
    # Projected with its gate, convolved, scanned, gated and normalised.
    tensors = (BF16 * (2 * mixed + 3 * inner) + states) / shape.tp
    return TokenBytes(_entry(arch, shape) + tensors, _gathered(arch, shape) + tensors)


def _mamba(arch: Architecture, shape: TrainShape) -> TokenBytes:
    return _recurrent(arch, shape, arch.mamba, MAMBA_CHUNK, 2) if arch.mamba else TokenBytes()


def _delta(arch: Architecture, shape: TrainShape) -> TokenBytes:
    return _recurrent(arch, shape, arch.delta, DELTA_CHUNK, 2) if arch.delta else TokenBytes()


_BLOCKS: dict[str, Callable[[Architecture, TrainShape], TokenBytes]] = {
    ATTENTION: _attention,
    MLP: _mlp,
    MOE: _moe,
    MAMBA: _mamba,
    DELTA: _delta,
}
