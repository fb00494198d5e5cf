"""RLix's staging buckets, its copies of weights in host memory, and what a GPU needs at least."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context
from jobspec.frameworks.rlix.settings import BUCKET_ENV, BUCKET_KEY, MODEL, PipelineSettings, bucket_bytes
from jobspec.frameworks.shared.nemo_recipe import get, number
from jobspec.megatron.architecture import Architecture, find_architecture, parse_config
from jobspec.megatron.memory import estimate
from jobspec.megatron.shape import TrainShape
from jobspec.megatron.weights import model_weights
from jobspec.units import GIB, gib, parse_bytes

MEBI = 1024**2
LEAST = 256 * MEBI  # what RLix's own documents use
STEP = 64 * MEBI
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
# Two versions of a pipeline's weights lie in host memory, and RLix refuses more than this of what is free.
COPIES, SHARE = 2, 0.8


def architecture(pipeline: PipelineSettings) -> Architecture | None:
    """The model's sizes: the spec's own, its config.json where that can be seen, else the shipped table."""
    model = pipeline.context.spec.model
    own = MODEL in pipeline.overrides
    if model is not None and model.config and not own:
        return _parsed(model.config, pipeline.model)
    file = Path(pipeline.model, "config.json")
    if pipeline.model.startswith("/") and file.is_file():
        try:
            found = json.loads(file.read_text("utf-8"))
        except (OSError, ValueError):
            found = None
        if isinstance(found, dict):
            return _parsed(found, pipeline.model)
    return find_architecture(pipeline.model) if pipeline.model else None


def _parsed(config: dict[str, object], name: str) -> Architecture | None:
    try:
        return parse_config(config, name)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None


def weight_bytes(pipeline: PipelineSettings) -> int:
    """Bytes of a pipeline's weights in its own precision; 0 where the model is not known."""
    arch = architecture(pipeline)
    return model_weights(arch).total * _width(pipeline) if arch is not None else 0


def largest_tensor(pipeline: PipelineSettings) -> int:
    """Bytes of the largest single tensor, the embedding or a feed-forward weight; 0 where not known."""
    arch = architecture(pipeline)
    if arch is None:
        return 0
    return max(arch.vocab, arch.ffn, arch.shared_ffn, arch.moe_ffn) * arch.hidden * _width(pipeline)


def _width(pipeline: PipelineSettings) -> int:
    return BYTES.get(str(get(pipeline.config, "policy.precision") or "bfloat16"), 2)


def chosen_bucket(context: Context, pipelines: Sequence[PipelineSettings]) -> int | None:
    """The size for `RLIX_BUCKET_SIZE_BYTES`: the spec's, else the least that holds every tensor.

    None where a model is not known and the spec says nothing.
    """
    given = bucket_bytes(context)
    if given is not None:
        return given
    tensors = [largest_tensor(pipeline) for pipeline in pipelines if own_bucket(pipeline) is None]
    if not all(tensors):
        return None
    return max([LEAST, *(-(-size // STEP) * STEP for size in tensors)])


def own_bucket(pipeline: PipelineSettings) -> int | None:
    """The pipeline's own size, which wins over the environment's."""
    return number(pipeline.config, BUCKET_KEY)


def check(context: Context, pipelines: Sequence[PipelineSettings]) -> Iterator[Finding]:
    given = bucket_bytes(context)
    env_key = f"container.env.{BUCKET_ENV}"
    if given == 0:
        what = f"`{BUCKET_ENV}` is no size in bytes"
        yield error("rlix.bucket-size", what, fix="write a whole number of bytes", path=env_key)
    chosen = chosen_bucket(context, pipelines)
    if chosen is None:
        unknown = next(
            pipeline
            for pipeline in pipelines
            if own_bucket(pipeline) is None and not largest_tensor(pipeline)
        )
        yield error(
            "rlix.bucket-size",
            f"no size is known for the buckets that carry weights of pipeline `{unknown.name}`",
            f"RLix has no default, and the sizes of `{unknown.model or 'its model'}` are not known here",
            f"set `{BUCKET_ENV}` in `container.env`: at least the largest tensor in bytes",
            path="container.env",
        )
    for pipeline in pipelines:
        size, need = own_bucket(pipeline) or chosen or 0, largest_tensor(pipeline)
        if size and need > size:
            own = own_bucket(pipeline) is not None
            yield error(
                "rlix.bucket-size",
                f"buckets of {size / MEBI:.0f} MiB are too small for pipeline `{pipeline.name}`",
                f"its largest tensor has {need / MEBI:.0f} MiB, and RLix never splits one",
                f"use {-(-need // STEP) * STEP} or more",
                path=f"{pipeline.path}.train.overrides" if own else env_key,
            )
    yield from _host_memory(context, pipelines)


def check_trainer(pipeline: PipelineSettings, shape: TrainShape) -> Iterator[Finding]:
    """Whether a pipeline's training by itself fits on a GPU of its own.

    A lower bound: what engines and other pipelines leave on the GPU while they sleep is not known. RLix's
    published runs of 0.5 B weights had two of each on GPUs of 12 to 16 GB, less than the rest that vLLM
    leaves on larger ones.
    """
    arch, sold = architecture(pipeline), pipeline.context.cluster.node.gpu_memory
    if arch is None or not sold:
        return
    found = estimate(shape, arch, parse_bytes(sold))
    if found.outcome == "fits":
        return
    over = found.outcome == "does not fit"
    need, has = found.worst.bytes / GIB, found.usable / GIB
    name = pipeline.name
    largest = sorted(found.worst.parts, key=lambda part: -part.bytes)[:3]
    parts = ", ".join(f"{part.name} {gib(part.bytes)}" for part in largest)
    make = error if over else warning
    yield make(
        "memory.gpu",
        f"pipeline `{name}` needs about {need:.0f} of a GPU's usable {has:.0f} GiB to train: {parts}",
        "estimated from the sizes; what engines and other pipelines leave there comes on top, not known here",
        "give it more `train_gpus`, offload its optimizer, or train a smaller model",
        path=f"{pipeline.path}.train_gpus",
    )


def _host_memory(context: Context, pipelines: Sequence[PipelineSettings]) -> Iterator[Finding]:
    have = context.spec.resources.memory or context.cluster.node.memory
    need = COPIES * sum(weight_bytes(pipeline) for pipeline in pipelines)
    if not have or not need:
        return
    room = parse_bytes(have)
    if need > SHARE * room:
        what = f"RLix keeps {need / 1e9:.0f} GB of weights in host memory, and a node has {room / 1e9:.0f} GB"
        why = (
            f"{COPIES} versions of each pipeline's weights; it refuses more than {SHARE:.0%} of what is free"
        )
        fix = "ask for more memory, or train smaller models"
        yield error("rlix.host-memory", what, why, fix, path="resources.memory")
    elif need > SHARE * room / 2:
        what = f"RLix keeps {need / 1e9:.0f} GB of weights in host memory, of {room / 1e9:.0f} GB"
        why = "beside the workers' own memory that may be too much"
        fix = "see that the node has it free"
        yield warning("rlix.host-memory", what, why, fix, path="resources.memory")
