"""Rules about sequences, recomputation, batches and inference engines."""

from __future__ import annotations

from collections.abc import Iterator

from jobspec.megatron.architecture import Architecture
from jobspec.megatron.fits import engine_divides, engines_fit
from jobspec.megatron.shape import TrainShape
from jobspec.megatron.violation import Violation, near


def check_sequence_parallel(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if shape.sequence_parallel is False and shape.ep > 1 and shape.tp > 1:
        yield Violation(
            "sequence_parallel",
            f"ep {shape.ep} with tp {shape.tp} and without sequence parallelism",
            {"sequence_parallel": (True,)},
        )


def check_sequence_alone(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if shape.sequence_parallel and shape.tp == 1:
        yield Violation(
            "sequence_parallel", "sequence parallelism with tp 1", {"sequence_parallel": (False,)}
        )


def check_context(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
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
            near(shape, arch, lambda s: (s.seq_length or 0) % (2 * s.cp) == 0, "cp"),
            fix=f"or pad sequences to a multiple of {2 * shape.cp}",
        )


def check_recompute(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    recompute = shape.recompute
    if recompute is None:
        return
    if recompute.granularity == "full" and (not recompute.method or not recompute.layers):
        missing = "a method" if not recompute.method else "a number of layers"
        yield Violation(
            "recompute",
            f"full recomputation without {missing}",
            fix="use method `uniform` and 1 layer",
        )
    if recompute.granularity == "selective" and recompute.layers:
        yield Violation(
            "recompute",
            f"selective recomputation with a number of layers ({recompute.layers})",
            fix="leave the number of layers out, or use full recomputation",
        )


def check_batch_dp(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if shape.global_batch and shape.dp and shape.global_batch % shape.dp:
        yield Violation(
            "global_batch",
            f"{shape.global_batch} samples of an optimizer step do not divide over {shape.dp} "
            "data-parallel ranks",
            near(shape, arch, lambda s: (s.global_batch or 0) % s.dp == 0, "global_batch"),
        )


def check_batch_micro(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if not shape.global_batch or not shape.micro_batch or not shape.dp or shape.tokens_per_microbatch:
        return
    each = shape.global_batch // shape.dp
    if each % shape.micro_batch and not shape.packed:
        yield Violation(
            "micro_batch",
            f"{each} samples of a data-parallel rank do not divide into micro-batches of {shape.micro_batch}",
            near(shape, arch, lambda s: each % (s.micro_batch or 1) == 0, "micro_batch"),
        )


def check_batch_steps(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    if not shape.global_batch or not shape.train_batch:
        return
    made = shape.train_batch * shape.samples_per_prompt
    if made % shape.global_batch:
        yield Violation(
            "global_batch",
            f"{made} samples of a step ({shape.train_batch} prompts x {shape.samples_per_prompt}) do not "
            f"divide into optimizer steps of {shape.global_batch}",
            near(shape, arch, lambda s: made % (s.global_batch or 1) == 0, "global_batch"),
        )


def check_placement(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    rollout = shape.rollout
    if rollout is None or engines_fit(shape):
        return
    gpus = shape.world if rollout.colocated else rollout.nodes * shape.gpus_per_node
    engines = f"{rollout.engines} engines" if rollout.engines is not None else "engines"
    place = "the trainer's" if rollout.colocated else "the generation nodes'"
    yield Violation(
        "rollout.engines" if rollout.engines is not None else "rollout.tp",
        f"{engines} of tp {rollout.tp} x pp {rollout.pp} x dp {rollout.dp} do not fill {place} {gpus} GPUs",
        near(
            shape,
            arch,
            engines_fit,
            *(["rollout.engines"] if rollout.engines else []),
            "rollout.tp",
            "rollout.pp",
        ),
    )


def check_engine_experts(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    rollout = shape.rollout
    if rollout is not None and shape.framework == "skyrl" and 1 < rollout.ep != rollout.dp * rollout.tp:
        yield Violation(
            "rollout.ep",
            f"an engine's ep {rollout.ep} is not its dp {rollout.dp} x tp {rollout.tp}",
            {"rollout.ep": (rollout.dp * rollout.tp,)},
        )


def check_engine_node(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    rollout = shape.rollout
    if rollout is not None and rollout.executor == "mp" and rollout.tp * rollout.pp > shape.gpus_per_node:
        yield Violation(
            "rollout.tp",
            f"an engine of tp {rollout.tp} x pp {rollout.pp} exceeds a node's {shape.gpus_per_node} GPUs",
            near(
                shape,
                arch,
                lambda s: s.rollout is not None and s.rollout.tp * s.rollout.pp <= s.gpus_per_node,
                "rollout.tp",
                "rollout.pp",
            ),
            fix="or use executor `ray`",
        )


def check_engine_heads(shape: TrainShape, arch: Architecture | None) -> Iterator[Violation]:
    rollout = shape.rollout
    if arch is None or rollout is None or engine_divides(arch, rollout):
        return
    yield Violation(
        "rollout.tp",
        f"heads of {arch.name or 'the model'} do not divide over an engine's tp {rollout.tp}",
        near(shape, arch, lambda s: s.rollout is not None and engine_divides(arch, s.rollout), "rollout.tp"),
    )
