"""How much memory a run needs: of a GPU in every pipeline stage while it trains, and of a host.

Everything is derived from sizes; docs/megatron.md has the formulae and how often they were right. The few
constants below are properties of libraries, each with its source, and are the same for every model and shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from jobspec.megatron.activations import TokenBytes, input_bytes, layer_bytes, logits_bytes
from jobspec.megatron.architecture import Architecture
from jobspec.megatron.routing import routing_imbalance
from jobspec.megatron.shape import Recompute, RolloutShape, TrainShape
from jobspec.megatron.weights import Stage, adapter_weights, gpu_weights, model_weights, padded_vocab, stages
from jobspec.units import GIB

# Share of a card's nominal memory that a process can use: 139.8 of an H200's 141, 79.1 of an H100's 80.
USABLE = 0.99
# Share of the usable memory above which a run may fail: the lowest estimate of one that did is 0.823.
TIGHT = 0.82
# Share above which no measured run went on: the highest estimate of one that did is 1.09.
HOPELESS = 1.1
# The CUDA context with the kernels of torch, Transformer Engine and flash attention.
CONTEXT = int(0.8 * GIB)
# Buffers of one NCCL communicator, with its channels' fifos of 4 MiB and more; a rank is in up to six.
COMMUNICATOR = int(0.25 * GIB)
# A colocated engine that sleeps keeps its own context, communicators and CUDA graphs.
# Source: 5 to 8 GiB were measured of vLLM on H200 (SkyRL, NEMOTRON_ULTRA_THROUGHPUT.md).
ASLEEP = 6 * GIB
# Allocator blocks that are too small for the next request, as a share of the activations. Routed tokens give
# every layer's tensors another size, so fewer blocks can be used again.
FRAGMENTATION, FRAGMENTATION_ROUTED = 0.08, 0.20

Outcome = Literal["fits", "tight", "does not fit"]


@dataclass(frozen=True)
class Part:
    """One line of the table."""

    name: str
    bytes: int
    how: str = ""


@dataclass(frozen=True)
class StageMemory:
    """Need of each GPU of one pipeline stage."""

    stage: Stage
    parts: tuple[Part, ...]

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)


@dataclass(frozen=True)
class Engine:
    """A GPU of an inference engine: its weights, and what is beside them.

    `allowed` is the share of the card's memory that the engine is given, 0 where it is not known. `beside`
    are a colocated trainer's weights, which stay on the GPU during their transfer.
    """

    weights: int
    allowed: int
    beside: int = 0


@dataclass(frozen=True)
class Estimate:
    """Needs of GPUs and hosts. `capacity` and `host_capacity` are 0 where the site profile says nothing."""

    stages: tuple[StageMemory, ...]
    host: tuple[Part, ...]
    capacity: int = 0
    host_capacity: int = 0
    assumed: tuple[str, ...] = ()
    engine: Engine | None = None

    @property
    def worst(self) -> StageMemory:
        return max(self.stages, key=lambda stage: stage.bytes)

    @property
    def usable(self) -> int:
        return int(self.capacity * USABLE)

    @property
    def is_hopeless(self) -> bool:
        """Whether the GPUs need more than any estimate of a run that was measured and did not fail."""
        return self.worst.bytes > self.usable * HOPELESS

    @property
    def host_bytes(self) -> int:
        return sum(part.bytes for part in self.host)

    @property
    def outcome(self) -> Outcome:
        """Of the GPUs; `fits` where their memory is not known."""
        return _outcome(self.worst.bytes, self.usable)

    @property
    def host_outcome(self) -> Outcome:
        return _outcome(self.host_bytes, self.host_capacity)


def _outcome(need: int, has: int) -> Outcome:
    if not has or need <= has * TIGHT:
        return "fits"
    return "tight" if need <= has else "does not fit"


def estimate(shape: TrainShape, arch: Architecture, capacity: int = 0, host_capacity: int = 0) -> Estimate:
    """The memory of a run whose sizes the rules accept; `capacity` is the nominal memory of a GPU."""
    trainer = tuple(
        StageMemory(stage, tuple(part for part in _gpu(shape, arch, stage) if part.bytes))
        for stage in stages(arch, shape)
    )
    host = tuple(part for part in _host(shape, arch) if part.bytes)
    assumed = tuple(_assumed(shape, arch))
    return Estimate(trainer, host, capacity, host_capacity, assumed, _engine(shape, arch, capacity, trainer))


# -- state -------------------------------------------------------------------------------------------


def _gpu(shape: TrainShape, arch: Architecture, stage: Stage) -> Iterable[Part]:
    dense, experts = gpu_weights(arch, shape, stage)
    width = 4 if shape.precision == "fp32" else 2
    yield Part(
        "weights", width * (dense + experts), f"{(dense + experts) / 1e9:.2f} B parameters x {width} B"
    )
    trained = _trained(shape, arch, stage, dense, experts)
    grads = 4 if shape.fp32_grads or shape.precision == "fp32" else 2
    yield Part("gradients", grads * sum(trained), f"{sum(trained) / 1e9:.2f} B parameters x {grads} B")
    state = _optimizer(shape, *trained) * (1 - shape.optimizer.offload)
    yield Part("optimizer", int(state), _sharding(shape))
    activations = tuple(_activations(shape, arch, stage))
    yield from activations
    if not shape.optimizer.fused:
        yield _unfused_step(shape, state, sum(part.bytes for part in activations))
    yield from _process(shape, arch)


def _unfused_step(shape: TrainShape, state: float, activations: int) -> Part:
    """torch's Adam makes an fp32 tensor of each parameter it owns, after the activations are freed."""
    adam = shape.optimizer
    made = int(state * 4 / (adam.master_bytes + 2 * adam.moment_bytes))
    return Part(
        "optimizer step", max(0, made - activations), "temporaries of torch's Adam beyond activations"
    )


def _trained(
    shape: TrainShape, arch: Architecture, stage: Stage, dense: int, experts: int
) -> tuple[int, int]:
    """Parameters with gradients and optimizer state: outside and in experts."""
    if shape.lora_rank:
        return adapter_weights(arch, shape, stage), 0
    return dense, experts


def _optimizer(shape: TrainShape, dense: int, experts: int) -> float:
    """Bytes of Adam's state of one GPU, wherever it lies."""
    kind = shape.optimizer
    each = 2 * kind.moment_bytes + (0 if shape.precision == "fp32" else kind.master_bytes)
    if not kind.distributed:
        return each * (dense + experts)
    return each * (dense / max(1, shape.dp * shape.cp) + experts / max(1, shape.expert_dp))


def _sharding(shape: TrainShape) -> str:
    kind = shape.optimizer
    each = 2 * kind.moment_bytes + (0 if shape.precision == "fp32" else kind.master_bytes)
    ranks = f", over {shape.dp * shape.cp} ranks, experts over {shape.expert_dp}" if kind.distributed else ""
    away = f", {kind.offload:.0%} on the host" if kind.offload else ""
    return f"{each} B of each trained parameter{ranks}{away}"


# -- activations -------------------------------------------------------------------------------------


def microbatch_tokens(shape: TrainShape) -> int:
    """Tokens of the largest micro-batch of a data-parallel rank.

    A cap in tokens is soft: a longer sequence is a micro-batch of its own.
    """
    longest = shape.seq_length or 0
    if shape.tokens_per_microbatch:
        return max(shape.tokens_per_microbatch, longest)
    return longest * (shape.micro_batch or 1)


def _in_flight(shape: TrainShape, stage: Stage) -> float:
    """Micro-batches of which a stage holds activations, under the 1F1B schedule.

    Interleaved (vpp) schedules hold (pp - 1) / (pp x vpp) more. Source: Korthikanti et al., section 4.2.3.
    """
    full = float(shape.pp - stage.index)
    if shape.vpp and shape.vpp > 1 and stage.first:
        full *= 1 + (shape.pp - 1) / (shape.pp * shape.vpp)
    return min(full, float(_microbatches(shape) or full))


def _microbatches(shape: TrainShape) -> int | None:
    """Micro-batches of an optimizer step, None where the batch is not known."""
    if not shape.global_batch or not shape.dp:
        return None
    samples = max(1, shape.global_batch // shape.dp)
    if shape.tokens_per_microbatch and shape.seq_length:
        return -(-samples // max(1, shape.tokens_per_microbatch // shape.seq_length))
    return -(-samples // (shape.micro_batch or 1))


def _activations(shape: TrainShape, arch: Architecture, stage: Stage) -> Iterable[Part]:
    tokens = microbatch_tokens(shape) / shape.cp
    of_word = {word: layer_bytes(arch, shape, word) for word in set(stage.layers)}
    layers = [of_word[word] for word in stage.layers]
    held, working = _held_and_working(shape, arch, layers)
    flight = _in_flight(shape, stage)
    kept, passing = flight * tokens * held, tokens * working
    logits = tokens * logits_bytes(arch, shape, padded_vocab(arch, shape.tp)) if stage.last else 0.0
    recompute = {"none": "all kept", "selective": "attention's cores recomputed", "full": "inputs kept"}
    what = recompute[_recompute(shape).granularity]
    size = f"{tokens:,.0f} tokens"
    yield Part(
        "activations", int(kept), f"{size} x {flight:.0f} micro-batches x {len(layers)} layers, {what}"
    )
    # The loss ends before the backward of the first layer begins: only the larger of the two counts.
    if logits > passing:
        share = padded_vocab(arch, shape.tp) // shape.tp
        yield Part("logits", int(logits), f"{size} x {share:,} of the vocabulary")
    else:
        yield Part("working set", int(passing), f"{size} of the widest layer, forward and backward")
    lost = FRAGMENTATION_ROUTED if arch.experts else FRAGMENTATION
    yield Part("fragmentation", int(lost * (kept + max(passing, logits))), f"{lost:.0%} of the activations")


def _recompute(shape: TrainShape) -> Recompute:
    return Recompute("full", "uniform", 1) if shape.recompute is None else shape.recompute


def _held_and_working(shape: TrainShape, arch: Architecture, layers: list[TokenBytes]) -> tuple[float, float]:
    """Bytes per token that a stage keeps of a micro-batch, and that pass while a layer's backward runs."""
    if not layers:
        return 0.0, 0.0
    passing = max(layer.passing for layer in layers)
    recompute = _recompute(shape)
    if recompute.granularity != "full":
        return sum(layer.saved for layer in layers), passing
    group = max(1, recompute.layers or 1)
    entry = input_bytes(arch, shape)
    if recompute.method == "block":
        rest = sum(layer.saved for layer in layers[group:])
        return entry * min(group, len(layers)) + rest, passing + max(layer.saved for layer in layers)
    groups = [layers[start : start + group] for start in range(0, len(layers), group)]
    redone = max(sum(layer.saved for layer in part) for part in groups)
    return entry * len(groups), passing + redone


# -- the process and the host ------------------------------------------------------------------------


def _process(shape: TrainShape, arch: Architecture) -> Iterable[Part]:
    sizes = (shape.tp, shape.pp, shape.cp, shape.ep, shape.dp, shape.dp * shape.cp)
    groups = 1 + sum(size > 1 for size in sizes)
    yield Part("CUDA and NCCL", CONTEXT + groups * COMMUNICATOR, f"context and {groups} communicators")
    rollout = shape.rollout
    if rollout is not None and rollout.colocated:
        if not rollout.stays:
            yield Part("engine, asleep", ASLEEP, "context, communicators and graphs of the inference engine")
            return
        yield Part("engine, awake", ASLEEP + _engine_weights(arch, rollout), "with its weights")


def _engine_weights(arch: Architecture, rollout: RolloutShape) -> int:
    width = {"fp8": 1.0, "fp4": 0.5}.get(rollout.precision, 2.0)
    return int(width * model_weights(arch).total / max(rollout.tp * rollout.pp, rollout.ep))


def _engine(
    shape: TrainShape, arch: Architecture, capacity: int, trainer: tuple[StageMemory, ...]
) -> Engine | None:
    """None when the engine or the precision of its weights is not known."""
    rollout = shape.rollout
    if rollout is None or not rollout.precision:
        return None
    weights = max(part.bytes for stage in trainer for part in stage.parts if part.name == "weights")
    return Engine(
        _engine_weights(arch, rollout),
        int(capacity * (rollout.memory_fraction or 0.0)),
        weights + CONTEXT if rollout.colocated else 0,
    )


def _host(shape: TrainShape, arch: Architecture) -> Iterable[Part]:
    """Memory of one node, of its fullest GPUs."""
    per_stage = [gpu_weights(arch, shape, stage) for stage in stages(arch, shape)]
    mean = sum(dense + experts for dense, experts in per_stage) / len(per_stage)
    state = sum(_optimizer(shape, dense, experts) for dense, experts in per_stage) / len(per_stage)
    gpus = shape.gpus_per_node
    if shape.lora_rank:
        state = 0.0
    offload = shape.optimizer.offload
    each = 2 * shape.optimizer.moment_bytes + shape.optimizer.master_bytes
    yield Part("optimizer state", int(gpus * state * offload), f"{offload:.0%} of it offloaded, {gpus} GPUs")
    # Megatron-Core's offloaded Adam copies fp32 gradients of its shard into pinned memory.
    yield Part("offloaded gradients", int(gpus * state * offload * 4 / each), "pinned, fp32")
    if shape.param_offload or _alternates(shape):
        yield Part("weights", int(gpus * 2 * mean), "pinned, while engines generate")
    if shape.reference:
        yield Part("reference weights", int(gpus * 2 * mean), "pinned, while the policy trains")
    if shape.async_save:
        yield Part(
            "checkpoint", int(gpus * (state + 2 * mean / max(1, shape.dp))), "copied, while it is written"
        )


def _alternates(shape: TrainShape) -> bool:
    return shape.rollout is not None and shape.rollout.colocated and not shape.rollout.stays


def _assumed(shape: TrainShape, arch: Architecture) -> Iterable[str]:
    if not shape.seq_length and not shape.tokens_per_microbatch:
        yield "no sequence length is known: activations are not counted"
    if _microbatches(shape) is None and shape.pp > 1:
        yield "the batch is not known: the pipeline is taken to be full"
    if shape.fp32_grads is None:
        yield "the width of gradients is not known: bf16 is taken, which needs the least memory"
    if shape.recompute is None:
        yield "recomputation is not known: full recomputation is taken, which needs the least memory"
    if arch.experts and shape.ep > 1:
        yield f"the busiest rank's experts get {routing_imbalance(arch, shape):.1f} times the mean of tokens"
    if arch.other_parts:
        yield "encoders of images or sound are not counted"
    if shape.critic:
        yield "the critic's memory is not counted"
