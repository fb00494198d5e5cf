"""Other shapes for the same model on the same nodes: those that fit, the fastest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from jobspec.megatron.architecture import Architecture
from jobspec.megatron.memory import Estimate, estimate
from jobspec.megatron.rules import is_valid
from jobspec.megatron.shape import TrainShape


@dataclass(frozen=True)
class Suggestion:
    """A shape that the rules accept and whose memory fits, and why it stands where it does."""

    shape: TrainShape
    memory: Estimate
    reason: str

    @property
    def text(self) -> str:
        s = self.shape
        sizes = f"tp {s.tp}, pp {s.pp}, cp {s.cp}" + (f", ep {s.ep}, etp {s.expert_tp}" if s.ep > 1 else "")
        return f"{sizes} (dp {s.dp}; {self.reason})"


def suggest(shape: TrainShape, arch: Architecture, capacity: int, count: int = 3) -> tuple[Suggestion, ...]:
    """Up to `count` shapes that fit, the fastest first; () when none does or the card is not known.

    The order is of communication and idle time, not a measurement: few pipeline stages first (their bubble),
    then small tp x cp (traffic in each layer), then small ep inside few nodes (all-to-all). A measured case
    in point: Nemotron-3-Ultra was 11 % faster with pp 2 than with pp 4 (NEMOTRON_ULTRA_THROUGHPUT.md).
    """
    if not capacity:
        return ()
    suggestions = []
    for candidate in sorted(_candidates(shape, arch), key=_cost):
        memory = estimate(candidate, arch, capacity)
        if memory.outcome == "fits" and is_valid(candidate, arch):
            suggestions.append(Suggestion(candidate, memory, _reason(candidate)))
            if len(suggestions) == count:
                break
    return tuple(suggestions)


def _candidates(shape: TrainShape, arch: Architecture) -> Iterator[TrainShape]:
    """Powers of two of every size that the GPUs and the model allow; stages even, or as they were given."""
    for tp in _powers(min(shape.gpus_per_node, shape.world)):
        for pp in _powers(min(len(arch.layers), shape.world // tp)):
            for cp in _powers(min(shape.world // (tp * pp), max(shape.cp, 8))):
                if shape.world % (tp * pp * cp) or (shape.global_batch or 0) % _dp(shape, tp * pp * cp):
                    continue
                for ep in _experts(shape, arch, pp):
                    yield _with(shape, arch, tp, pp, cp, ep)


def _with(shape: TrainShape, arch: Architecture, tp: int, pp: int, cp: int, ep: int) -> TrainShape:
    same_pp = pp == shape.pp
    return replace(
        shape,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        etp=1 if arch.experts else shape.etp,
        vpp=shape.vpp if same_pp else None,
        first_stage_layers=shape.first_stage_layers if same_pp else None,
        last_stage_layers=shape.last_stage_layers if same_pp else None,
        pipeline_layout=shape.pipeline_layout if same_pp else "",
        sequence_parallel=None if tp == 1 or arch.experts else shape.sequence_parallel,
    )


def _dp(shape: TrainShape, model: int) -> int:
    return max(1, shape.world // model)


def _experts(shape: TrainShape, arch: Architecture, pp: int) -> tuple[int, ...]:
    if not arch.experts:
        return (1,)
    return tuple(ep for ep in _powers(min(arch.experts, shape.world // pp)) if shape.world % (ep * pp) == 0)


def _powers(most: int) -> tuple[int, ...]:
    return tuple(1 << exponent for exponent in range(max(1, most).bit_length()))


def _cost(shape: TrainShape) -> tuple[float, int, int, int]:
    """What makes a shape slow, the worst first: for ordering alone."""
    steps = (shape.global_batch or 0) // max(1, shape.dp)
    bubble = (shape.pp - 1) / (steps + shape.pp - 1) if steps else float(shape.pp - 1)
    far = max(1, shape.ep // shape.gpus_per_node)
    return (round(bubble, 2), shape.tp * shape.cp, far, shape.ep)


def _reason(shape: TrainShape) -> str:
    parts = ["no pipeline bubble" if shape.pp == 1 else f"bubble of {shape.pp} stages"]
    parts.append(
        f"layers shared by {shape.tp * shape.cp} GPUs" if shape.tp * shape.cp > 1 else "whole layers"
    )
    if shape.ep > shape.gpus_per_node:
        parts.append("experts over nodes")
    return ", ".join(parts)
