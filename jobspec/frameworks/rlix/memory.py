"""RLix's staging buckets, its copies of weights in host memory, and the least memory of a GPU."""

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
LEAST = 256 * MEBI  # the size in RLix's own documents
STEP = 64 * MEBI
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
# Two versions of a pipeline's weights lie in host memory. RLix refuses more than this share of what is free.
COPIES, SHARE = 2, 0.8


def architecture(pipeline: PipelineSettings) -> Architecture | None:
    """The model's sizes from the spec, else from its config.json, else from the shipped table."""
    model = pipeline.context.spec.model
    own = MODEL in pipeline.overrides
    if model is not None and model.config and not own:
        return _parsed(model.config, pipeline.model)
    file = Path(pipeline.model, "config.json")
    if pipeline.model.startswith("/") and file.is_file():
        try:
            config = json.loads(file.read_text("utf-8"))
        except (OSError, ValueError):
            config = None
        if isinstance(config, dict):
            return _parsed(config, pipeline.model)
    return find_architecture(pipeline.model) if pipeline.model else None


def _parsed(config: dict[str, object], name: str) -> Architecture | None:
    try:
        return parse_config(config, name)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None


def weight_bytes(pipeline: PipelineSettings) -> int:
    """Bytes of a pipeline's weights in its own precision; 0 for an unknown model."""
    arch = architecture(pipeline)
    return model_weights(arch).total * _width(pipeline) if arch is not None else 0


def largest_tensor(pipeline: PipelineSettings) -> int:
    """Bytes of the largest tensor, the embedding or a feed-forward weight; 0 for an unknown model."""
    arch = architecture(pipeline)
    if arch is None:
        return 0
    return max(arch.vocab, arch.ffn, arch.shared_ffn, arch.moe_ffn) * arch.hidden * _width(pipeline)


def _width(pipeline: PipelineSettings) -> int:
    return BYTES.get(str(get(pipeline.config, "policy.precision") or "bfloat16"), 2)


def chosen_bucket(context: Context, pipelines: Sequence[PipelineSettings]) -> int | None:
    """The size for `RLIX_BUCKET_SIZE_BYTES`: the spec's, else the least that holds every tensor.

    None for an unknown model without a size in the spec.
    """
    size = bucket_bytes(context)
    if size is not None:
        return size
    tensors = [largest_tensor(pipeline) for pipeline in pipelines if own_bucket(pipeline) is None]
    if not all(tensors):
        return None
    return max([LEAST, *(-(-tensor // STEP) * STEP for tensor in tensors)])


def own_bucket(pipeline: PipelineSettings) -> int | None:
    """The pipeline's own size, which wins over the environment's."""
    return number(pipeline.config, BUCKET_KEY)


def check(context: Context, pipelines: Sequence[PipelineSettings]) -> Iterator[Finding]:
    env_key = f"container.env.{BUCKET_ENV}"
    if bucket_bytes(context) == 0:
        what = f"`{BUCKET_ENV}` is not a size in bytes"
        yield error("rlix.bucket-size", what, fix="write a whole number of bytes", path=env_key)
    bucket = chosen_bucket(context, pipelines)
    if bucket is None:
        unknown = next(
            pipeline
            for pipeline in pipelines
            if own_bucket(pipeline) is None and not largest_tensor(pipeline)
        )
        yield error(
            "rlix.bucket-size",
            f"the size of the buckets for the weights of pipeline `{unknown.name}` is unknown",
            f"RLix has no default, and jobspec does not know the sizes of `{unknown.model or 'its model'}`",
            f"set `{BUCKET_ENV}` in `container.env` to the bytes of the largest tensor or more",
            path="container.env",
        )
    for pipeline in pipelines:
        size, need = own_bucket(pipeline) or bucket or 0, largest_tensor(pipeline)
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
    """A finding when a pipeline's training does not fit on a GPU, or only just.

    The estimate is a lower bound: engines and other pipelines leave an unknown amount of memory on the GPU
    while they sleep. RLix's published runs of 0.5 B weights had two of each on GPUs of 12 to 16 GB, less than
    the rest that vLLM leaves on larger ones.
    """
    arch, sold = architecture(pipeline), pipeline.context.cluster.node.gpu_memory
    if arch is None or not sold:
        return
    memory = estimate(shape, arch, parse_bytes(sold))
    if memory.outcome == "fits":
        return
    need, has = memory.worst.bytes / GIB, memory.usable / GIB
    name = pipeline.name
    largest = sorted(memory.worst.parts, key=lambda part: -part.bytes)[:3]
    parts = ", ".join(f"{part.name} {gib(part.bytes)}" for part in largest)
    make = error if memory.is_hopeless else warning
    yield make(
        "memory.gpu",
        f"training of pipeline `{name}` needs about {need:.0f} GiB of a GPU, "
        f"and {has:.0f} GiB are usable: {parts}",
        "estimated for training alone: engines and other pipelines take an unknown amount on top",
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
            f"RLix keeps {COPIES} versions of each pipeline's weights, "
            f"and refuses more than {SHARE:.0%} of the free memory"
        )
        fix = "ask for more memory, or train smaller models"
        yield error("rlix.host-memory", what, why, fix, path="resources.memory")
    elif need > SHARE * room / 2:
        what = f"RLix keeps {need / 1e9:.0f} GB of weights in host memory, and a node has {room / 1e9:.0f} GB"
        why = "the workers' own memory comes on top, and both may be too much"
        fix = "check that the node has this much free"
        yield warning("rlix.host-memory", what, why, fix, path="resources.memory")
