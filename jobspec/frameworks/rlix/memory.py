"""RLix's staging buckets and the copies of weights that it keeps in host memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context
from jobspec.frameworks.nemo_config import get, number
from jobspec.frameworks.rlix.settings import BUCKET_ENV, BUCKET_KEY, MODEL, Job, bucket_bytes
from jobspec.megatron.architecture import Architecture, find_architecture, parse_config
from jobspec.megatron.weights import model_weights
from jobspec.units import parse_bytes

MEBI = 1024**2
LEAST = 256 * MEBI  # what RLix's own documents use
STEP = 64 * MEBI
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
# Two versions of a pipeline's weights lie in host memory, and RLix refuses more than this of what is free.
COPIES, SHARE = 2, 0.8


def architecture(job: Job) -> Architecture | None:
    """The model's sizes: the spec's own, its config.json where that can be seen, else the shipped table."""
    model = job.context.spec.model
    own = MODEL in job.overrides
    if model is not None and model.config and not own:
        return _parsed(model.config, job.model)
    file = Path(job.model, "config.json")
    if job.model.startswith("/") and file.is_file():
        try:
            found = json.loads(file.read_text("utf-8"))
        except (OSError, ValueError):
            found = None
        if isinstance(found, dict):
            return _parsed(found, job.model)
    return find_architecture(job.model) if job.model else None


def _parsed(config: dict[str, object], name: str) -> Architecture | None:
    try:
        return parse_config(config, name)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None


def weight_bytes(job: Job) -> int:
    """Bytes of a pipeline's weights in its own precision; 0 where the model is not known."""
    arch = architecture(job)
    return model_weights(arch).total * _width(job) if arch is not None else 0


def largest_tensor(job: Job) -> int:
    """Bytes of the largest single tensor, the embedding or a feed-forward weight; 0 where not known."""
    arch = architecture(job)
    if arch is None:
        return 0
    return max(arch.vocab, arch.ffn, arch.shared_ffn, arch.moe_ffn) * arch.hidden * _width(job)


def _width(job: Job) -> int:
    return BYTES.get(str(get(job.config, "policy.precision") or "bfloat16"), 2)


def chosen_bucket(context: Context, jobs: Sequence[Job]) -> int | None:
    """The size for `RLIX_BUCKET_SIZE_BYTES`: the spec's, else the least that holds every tensor.

    None where a model is not known and the spec says nothing.
    """
    given = bucket_bytes(context)
    if given is not None:
        return given
    tensors = [largest_tensor(job) for job in jobs if own_bucket(job) is None]
    if not all(tensors):
        return None
    return max([LEAST, *(-(-size // STEP) * STEP for size in tensors)])


def own_bucket(job: Job) -> int | None:
    """The pipeline's own size, which wins over the environment's."""
    return number(job.config, BUCKET_KEY)


def check(context: Context, jobs: Sequence[Job]) -> Iterator[Finding]:
    given = bucket_bytes(context)
    env_key = f"container.env.{BUCKET_ENV}"
    if given == 0:
        what = f"`{BUCKET_ENV}` is no size in bytes"
        yield error("rlix.bucket-size", what, fix="write a whole number of bytes", path=env_key)
    chosen = chosen_bucket(context, jobs)
    if chosen is None:
        unknown = next(job for job in jobs if own_bucket(job) is None and not largest_tensor(job))
        yield error(
            "rlix.bucket-size",
            f"no size is known for the buckets that carry weights of pipeline `{unknown.name}`",
            f"RLix has no default, and the sizes of `{unknown.model or 'its model'}` are not known here",
            f"set `{BUCKET_ENV}` in `container.env`: at least the largest tensor in bytes",
            path="container.env",
        )
    for job in jobs:
        size, need = own_bucket(job) or chosen or 0, largest_tensor(job)
        if size and need > size:
            own = own_bucket(job) is not None
            yield error(
                "rlix.bucket-size",
                f"buckets of {size / MEBI:.0f} MiB do not hold the largest tensor of pipeline `{job.name}`",
                f"it has {need / MEBI:.0f} MiB, and RLix never splits one",
                f"use {-(-need // STEP) * STEP} or more",
                path=f"{job.path}.train.overrides" if own else env_key,
            )
    yield from _host_memory(context, jobs)


def _host_memory(context: Context, jobs: Sequence[Job]) -> Iterator[Finding]:
    have = context.spec.resources.memory or context.cluster.node.memory
    need = COPIES * sum(weight_bytes(job) for job in jobs)
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
