"""The tokens of the busiest rank's experts, as a multiple of the mean.

A rank must hold the tokens that its router sends in the worst layer of the worst micro-batch: the mean is too
little.
"""

from __future__ import annotations

import math

from jobspec.megatron.architecture import MOE, Architecture
from jobspec.megatron.shape import TrainShape

# With real text: the largest excess of one expert in one batch is about 0.7 with routers that balance by a
# bias or a loss, and a rank has several experts. Source: L. Wang et al., "Auxiliary-Loss-Free Load Balancing
# Strategy for Mixture-of-Experts" (2024), MaxVio.
TEXT = 1.5
MICROBATCHES = 16  # that are seen in a few steps; the result hardly depends on it


def routing_imbalance(arch: Architecture, shape: TrainShape) -> float:
    """Tokens of the busiest rank's experts, as a multiple of the mean; 1 without expert parallelism."""
    if shape.ep == 1 or not arch.experts:
        return 1.0
    return TEXT if shape.content == "text" else _repeated(arch, shape)


def _repeated(arch: Architecture, shape: TrainShape) -> float:
    """The multiple for repeated tokens, which all choose the same experts.

    The model throws balls into `ep` bins: as many as kinds of tokens times top-k. The fullest bin is the
    largest that is expected once over all layers, ranks and micro-batches. The sequences of one micro-batch
    count as one kind: measured peaks of four packed sequences and of a single one with as many tokens are the
    same (108 and 110 GB, NEMOTRON_ULTRA_THROUGHPUT.md).
    """
    alike = shape.content == "token per batch"
    # Data-parallel ranks whose micro-batches one all-to-all mixes.
    kinds = 1 if alike else max(1, shape.expert_tp * shape.ep // (shape.tp * shape.cp))
    mean = kinds * arch.topk / shape.ep
    trials = shape.ep * arch.count(MOE) * (1 if alike else MICROBATCHES)
    return min(shape.ep, _largest_expected(mean, trials) / mean)


def _largest_expected(mean: float, trials: int) -> int:
    """The largest count of a Poisson distribution that `trials` draws reach at least once on average."""
    count, term = 0, math.exp(-mean)
    above = 1.0 - term  # probability of more than `count`
    while above * trials >= 1.0:
        count += 1
        term *= mean / count
        above -= term
    return count
