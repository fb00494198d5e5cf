"""The published measurements of Nemotron-3-Ultra and GLM-4.7 on 64 H200: what fitted and what did not.

Source: erictang000/SkyRL 290466b8, examples/train/megatron/NEMOTRON_ULTRA_THROUGHPUT.md (June 2026) and
ai_docs/glm47_355b_128k_max_tokens_throughput_0702.md. Largest micro-batch, not the cap, where both are given.
Both harnesses fabricate sequences of one random token repeated (trainer_ultra_sweep.py, trainer_full_ctx.py);
GLM's batches of full length repeat the same one in all sequences. The peaks of Ultra are the caching
allocator's high-water marks in GB. GLM's figures are no peaks: its harness asks what is used after the step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from jobspec.megatron.shape import OptimizerShape, Recompute, RolloutShape, TrainShape


@dataclass(frozen=True)
class Row:
    """One published result. `fits` None: the shape is invalid."""

    name: str
    model: str
    shape: TrainShape
    fits: bool | None
    peak_gb: float | None = None


# bf16 gradients, optimizer on the host, full recomputation of each layer.
_BASE = TrainShape(
    nodes=8,
    gpus_per_node=8,
    framework="skyrl",
    etp=1,
    packed=True,
    content="token per sequence",
    logits_chunk=1024,
    mtp_layers=0,
    optimizer=OptimizerShape(precision_aware=True, offload=1.0),
    recompute=Recompute("full", "uniform", 1),
)
_ULTRA = replace(
    _BASE, fp32_grads=False, rollout=RolloutShape(2, tp=8, pp=4, memory_fraction=0.6, precision="bf16")
)
_GLM = replace(_BASE, fp32_grads=True)
ULTRA, GLM = "NVIDIA-Nemotron-3-Ultra-550B-A55B", "GLM-4.7"


def _ultra(
    name: str,
    grid: str,
    tokens: int,
    fits: bool | None,
    peak: float | None = None,
    samples: int = 64,
    seq: int = 10240,
) -> Row:
    """`grid` is tp/pp/cp/ep; `tokens` the largest micro-batch of a data-parallel rank."""
    tp, pp, cp, ep = (int(part) for part in grid.split("/"))
    shape = replace(
        _ULTRA, tp=tp, pp=pp, cp=cp, ep=ep, seq_length=seq, tokens_per_microbatch=tokens, global_batch=samples
    )
    return Row(f"Ultra {name}", ULTRA, shape, fits, peak)


def _glm(name: str, grid: str, tokens: int, samples: int, fits: bool, seq: int = 128000) -> Row:
    tp, pp, cp, ep = (int(part) for part in grid.split("/"))
    content: Literal["token per sequence", "token per batch"] = (
        "token per batch" if seq == 128000 else "token per sequence"
    )
    shape = replace(
        _GLM,
        content=content,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        seq_length=seq,
        tokens_per_microbatch=tokens,
        global_batch=samples,
    )
    return Row(f"GLM-4.7 {name}", GLM, shape, fits)


ROWS: tuple[Row, ...] = (
    _ultra("stage 1, cap 65536", "8/4/1/16", 61440, True, samples=32),
    _ultra("stage 1, cap 73728", "8/4/1/16", 71680, False, samples=32),
    _ultra("stage 1, cap 81920", "8/4/1/16", 81920, False, samples=32),
    _ultra("stage 1, cap 98304", "8/4/1/16", 92160, False, samples=40),
    _ultra("stage 1, cap 131072", "8/4/1/16", 122880, False, samples=56),
    _ultra("stage 2, PP2 EP32, cap 32k", "8/2/1/32", 30720, True, 109.9),
    _ultra("stage 2, PP4 EP16, cap 48k", "8/4/1/16", 40960, True, 108.3),
    _ultra("stage 2, PP2 EP32, cap 48k", "8/2/1/32", 40960, False),
    _ultra("stage 2, TP4 PP4 EP16, cap 32k", "4/4/1/16", 30720, False),
    _ultra("stage 2, PP4 EP8, cap 48k", "8/4/1/8", 40960, False),
    _ultra("stage 2, PP8 EP8", "8/8/1/8", 40960, None),
    _ultra("stage 2, TP4 PP8 EP8", "4/8/1/8", 40960, None),
    _ultra("stage 3, one of 40960", "8/4/1/16", 40960, True, 110.0, seq=40960),
    _ultra("stage 3, one of 49152", "8/4/1/16", 49152, False, seq=49152),
    _ultra("stage 3, CP2, one of 98304", "8/4/2/16", 98304, True, seq=98304),
    _ultra("stage 3, CP2, one of 131072", "8/4/2/16", 131072, False, seq=131072),
    _ultra("stage 3, CP4 PP2 EP32, one of 131072", "8/2/4/32", 131072, False, seq=131072),
    _ultra("stage 3, mixed lengths to 40960", "8/4/1/16", 40960, True, 112.9, seq=40960),
    _glm("stage 1, cap 128k", "8/4/2/16", 128000, 8, True),
    _glm("stage 1, cap 256k", "8/4/2/16", 256000, 8, True),
    _glm("stage 1, cap 384k", "8/4/2/16", 384000, 8, True),
    _glm("stage 1, cap 512k", "8/4/2/16", 512000, 8, False),
    _glm("stage 2, PP4 CP2", "8/4/2/16", 128000, 32, True),
    _glm("stage 2, PP4 CP1", "8/4/1/16", 128000, 32, True),
    _glm("stage 2, PP4 CP1, overlapped", "8/4/1/16", 128000, 32, True),
    _glm("stage 2, PP2 EP32", "8/2/1/32", 128000, 32, False),
    _glm("stage 3, 256 of mean 70k, cap 256k", "8/4/2/16", 256000, 256, True, seq=71406),
    _glm("stage 3, 256 of mean 70k, cap 384k", "8/4/2/16", 384000, 256, False, seq=71406),
)
