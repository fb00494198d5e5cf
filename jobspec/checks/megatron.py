"""Whether the sizes of a Megatron run fit each other, the model, the GPUs and the hosts. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jobspec.finding import Finding, error, warning
from jobspec.megatron.architecture import Architecture
from jobspec.megatron.memory import Estimate, estimate
from jobspec.megatron.rules import check_shape
from jobspec.megatron.shape import TrainShape
from jobspec.megatron.shapes import Suggestion, suggest
from jobspec.units import gib


@dataclass(frozen=True)
class Training:
    """A Megatron run: its shape, its model if known, and the memory of a GPU and a node (0: not known)."""

    shape: TrainShape
    arch: Architecture | None = None
    gpu_bytes: int = 0
    node_bytes: int = 0

    @property
    def memory(self) -> Estimate | None:
        if self.arch is None:
            return None
        return estimate(self.shape, self.arch, self.gpu_bytes, self.node_bytes)

    @property
    def suggestions(self) -> tuple[Suggestion, ...]:
        return () if self.arch is None else suggest(self.shape, self.arch, self.gpu_bytes)


def check_training(training: Training) -> tuple[Finding, ...]:
    """Broken rules. Without an error among them also memory: an impossible shape has no estimate."""
    broken = check_shape(training.shape, training.arch)
    if any(finding.is_error for finding in broken):
        return (*broken, *_alternatives(training))
    return (*broken, *_gpu_memory(training), *_engine_memory(training), *_host_memory(training))


def _alternatives(training: Training) -> Iterator[Finding]:
    better = training.suggestions
    if better:
        yield warning(
            "megatron.shapes",
            f"shapes that fit {_place(training.shape)}, the fastest first: {_listed(better)}",
            why="ordered by pipeline bubble, then by traffic between GPUs; nothing was measured",
            path=training.shape.key("tp"),
        )


def _gpu_memory(training: Training) -> Iterator[Finding]:
    memory = training.memory
    if memory is None or not memory.capacity or memory.outcome == "fits":
        return
    over = memory.outcome == "does not fit"
    need, has = memory.worst.bytes, memory.usable
    why = "estimated from the sizes; `jobspec explain SPEC memory` shows every part"
    if not memory.is_hopeless:
        unlucky = ", and a batch with an unlucky routing or packing needs more"
        why += "; measured runs went on at up to 1.09 times the memory" if over else unlucky
    largest = sorted(memory.worst.parts, key=lambda part: -part.bytes)[:3]
    parts = ", ".join(f"{part.name} {gib(part.bytes)}" for part in largest)
    better = training.suggestions if over else ()
    fix = (
        f"use a shape that fits, the fastest first: {_listed(better)}"
        if better
        else _levers(training, memory)
    )
    make = error if memory.is_hopeless else warning
    yield make(
        "memory.gpu",
        f"about {gib(need)} of a GPU's usable {gib(has)} are needed on pipeline stage "
        f"{memory.worst.stage.index}: {parts}",
        why=why,
        fix=fix,
        path=training.shape.key("tp"),
    )


def _engine_memory(training: Training) -> Iterator[Finding]:
    """An error when an engine's weights exceed its share, or exceed the GPU beside the trainer's weights."""
    memory, rollout = training.memory, training.shape.rollout
    if memory is None or memory.engine is None or rollout is None or not memory.capacity:
        return
    engine = memory.engine
    spread = f"tp {rollout.tp} x pp {rollout.pp}" + (f", ep {rollout.ep}" if rollout.ep > 1 else "")
    if engine.allowed and engine.weights > engine.allowed:
        yield error(
            "memory.engine",
            f"an engine's weights are {gib(engine.weights)} on each GPU ({spread}), its share is "
            f"{gib(engine.allowed)}",
            why=f"{rollout.memory_fraction} of the GPU's memory is for weights and KV cache together",
            fix="give an engine more GPUs, or a larger share",
            path=training.shape.key("rollout.tp"),
        )
    elif engine.weights + engine.beside > memory.usable:
        yield error(
            "memory.engine",
            f"an engine's weights ({gib(engine.weights)} on each GPU, {spread}) and the trainer's "
            f"({gib(engine.beside)}) exceed the usable {gib(memory.usable)}",
            why="both are on the GPU while the trainer sends its weights to the engine",
            fix="give an engine more GPUs, or generate on nodes of their own",
            path=training.shape.key("rollout.tp"),
        )


def _host_memory(training: Training) -> Iterator[Finding]:
    memory = training.memory
    if memory is None or not memory.host_capacity or memory.host_outcome == "fits":
        return
    over = memory.host_outcome == "does not fit"
    parts = ", ".join(f"{part.name} {gib(part.bytes)}" for part in memory.host)
    make = error if over else warning
    yield make(
        "memory.host",
        f"about {gib(memory.host_bytes)} of a node's {gib(memory.host_capacity)} are needed: {parts}",
        why="`node.memory` of the site profile; the page cache and the engines' own processes come on top",
        fix="offload less of the optimizer, or use more nodes",
        path=training.shape.key("nodes"),
    )


def _levers(training: Training, memory: Estimate) -> str:
    """Ways to need less memory when no other shape fits."""
    shape = training.shape
    largest = max(memory.worst.parts, key=lambda part: part.bytes).name
    ways = []
    if shape.recompute is not None and shape.recompute.granularity != "full":
        ways.append("recompute all activations")
    if shape.optimizer.offload == 0 and largest in ("optimizer", "weights", "gradients"):
        ways.append("offload the optimizer to the host")
    if shape.fp32_grads and largest == "gradients":
        ways.append("keep gradients in bf16")
    if largest in ("activations", "working set", "logits", "fragmentation"):
        ways.append("use fewer tokens in a micro-batch")
    return ", or ".join([*ways, "use more nodes"])


def _place(shape: TrainShape) -> str:
    return f"{shape.nodes} x {shape.gpus_per_node} GPUs"


def _listed(better: tuple[Suggestion, ...]) -> str:
    return "; ".join(f"{item.text}, {gib(item.memory.worst.bytes)}" for item in better)
