"""Which GPUs pipelines may have: the conditions of RLix's scheduler and of its partial overlap, as rules.

RLix checks most conditions only when it registers a pipeline. It never checks those of partial overlap: only
its tests call that validator. Two conditions of RLix are imprecise and corrected here. The product
tp x pp x cp x ep need not divide the GPUs, since experts have their own grid. A whole engine must stay awake,
not a number of GPUs.
Source: rlops/rlix `nemo` f77d913, `rlix/pipeline/nemo_rl_config_bridge.py` and `rlix/scheduler/scheduler.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.rlix.settings import COLOCATED, PipelineSettings
from jobspec.frameworks.shared.nemo_recipe import ENGINE, number

FREE_TP = (1, 2, 4, 8)  # any other tp must be whole nodes
MAX_NAMED = 4


def check(pipelines: Sequence[PipelineSettings], nodes: int, per_node: int) -> Iterator[Finding]:
    """Findings about each pipeline by itself, then about all together."""
    for pipeline in pipelines:
        yield from check_gpus(pipeline, nodes * per_node)
        yield from check_engines(pipeline, per_node)
    yield from check_workers(pipelines)
    yield from check_turns(pipelines)


def check_gpus(pipeline: PipelineSettings, total: int) -> Iterator[Finding]:
    """Errors about the GPUs that one pipeline names."""
    for key, ids in (("train_gpus", pipeline.train), ("infer_gpus", pipeline.infer)):
        far = [gpu for gpu in ids if gpu >= total]
        if far:
            what = f"pipeline `{pipeline.name}` names GPU {far[0]}, and the run has {total} GPUs"
            why = "GPU numbers count from 0 over all nodes"
            fix = f"use 0 to {total - 1}" if total else "set `resources.gpus_per_node`"
            yield error("rlix.gpu", what, why, fix, path=f"{pipeline.path}.{key}")
    outside = sorted(set(pipeline.train) - set(pipeline.infer))
    if outside:
        yield error(
            "rlix.overlap",
            f"pipeline `{pipeline.name}` trains on GPU {outside[0]}, where it has no engine",
            "`train_gpus` must be a part of `infer_gpus`",
            "add it to `infer_gpus`",
            path=f"{pipeline.path}.infer_gpus",
        )


def check_engines(pipeline: PipelineSettings, per_node: int) -> Iterator[Finding]:
    """The engines' tensor-parallel groups: whole, side by side, and enough of them."""
    tp, path = pipeline.engine_tp, f"{pipeline.path}.infer_gpus"
    stages = number(pipeline.config, ENGINE["pp"]) or 1
    if stages > 1:
        what = f"engines of pipeline `{pipeline.name}` have {stages} pipeline stages"
        why = "RLix forms engines of tp GPUs each"
        yield error("rlix.engine-pp", what, why, "use pp 1", path=_key(pipeline, "pp"))
    if tp not in FREE_TP and tp % per_node:
        what = f"engines of pipeline `{pipeline.name}` have tp {tp}"
        fix = f"use 1, 2, 4, 8 or a multiple of {per_node}"
        yield error(
            "rlix.engine-tp", what, "RLix's scheduler refuses this tp", fix, path=_key(pipeline, "tp")
        )
        return
    if len(pipeline.infer) % tp:
        what = (
            f"the {len(pipeline.infer)} GPUs of pipeline `{pipeline.name}` make no whole engines of tp {tp}"
        )
        fix = f"name a multiple of {tp} GPUs"
        yield error("rlix.engine-tp", what, "the number of GPUs must be a multiple of tp", fix, path=path)
        return
    groups = engine_groups(pipeline)
    broken = next((group for group in groups if not _placed_well(group, per_node)), None)
    if broken is not None:
        what = f"GPUs {_list(broken)} of pipeline `{pipeline.name}` form one engine, and are not side by side"
        why = "an engine's GPUs must follow each other within a node, or be whole nodes"
        yield error("rlix.engine-group", what, why, "name other GPUs", path=path)
    if len(groups) < 2:
        what = f"pipeline `{pipeline.name}` has one engine"
        why = "an engine sleeps while its GPUs train, and a second one must go on"
        fix = f"give it {2 * tp} GPUs or more, or a smaller tp"
        yield error("rlix.engines", what, why, fix, path=path)
    elif all(set(group) & set(pipeline.train) for group in groups):
        what = f"every engine of pipeline `{pipeline.name}` shares a GPU with its trainer"
        why = "every engine would sleep during training: one whole engine must have no GPU of the trainer"
        fix = "move its `train_gpus` onto fewer engines, or add GPUs"
        yield error("rlix.engine-awake", what, why, fix, path=path)


def engine_groups(pipeline: PipelineSettings) -> tuple[tuple[int, ...], ...]:
    """GPUs of each engine, as RLix forms them: sorted, then tp at a time."""
    tp = pipeline.engine_tp
    return tuple(pipeline.infer[start : start + tp] for start in range(0, len(pipeline.infer), tp))


def _placed_well(group: Sequence[int], per_node: int) -> bool:
    follows = list(group) == list(range(group[0], group[0] + len(group)))
    if not follows or len(group) == 1:
        return follows
    if len(group) <= per_node:
        return group[0] // per_node == group[-1] // per_node
    return group[0] % per_node == 0 and len(group) % per_node == 0


def check_workers(pipelines: Sequence[PipelineSettings]) -> Iterator[Finding]:
    """An error when the workers of all pipelines reserve more than one GPU, asleep or not."""
    shares: dict[int, list[float]] = {}
    for pipeline in pipelines:
        groups = pipeline.wrapper[COLOCATED]
        if isinstance(groups, int) and groups > 0:
            for gpu in (*pipeline.train, *pipeline.infer):
                shares.setdefault(gpu, []).append(1 / groups)
    first = min((gpu for gpu, of in shares.items() if sum(of) > 1 + 1e-9), default=None)
    if first is not None:
        count, reserved = len(shares[first]), sum(shares[first])
        what = f"{count} workers share GPU {first}, and reserve {reserved:.2f} of it"
        why = f"each worker reserves 1 / `{COLOCATED}` of a GPU for the whole run"
        fix = f"set `{COLOCATED}` to {count} or more in `train.overrides`"
        yield error("rlix.colocation", what, why, fix, path=f"{pipelines[-1].path}.infer_gpus")


def check_turns(pipelines: Sequence[PipelineSettings]) -> Iterator[Finding]:
    """One warning for pipelines that train on the same GPU: they take turns, which is slow."""
    trainers = Counter(gpu for pipeline in pipelines for gpu in set(pipeline.train))
    gpu = min((gpu for gpu, count in trainers.items() if count > 1), default=None)
    if gpu is not None:
        sharing = [pipeline for pipeline in pipelines if gpu in pipeline.train]
        named = ", ".join(f"`{pipeline.name}`" for pipeline in sharing[:MAX_NAMED])
        more = ", ..." if len(sharing) > MAX_NAMED else ""
        yield warning(
            "rlix.train-shared",
            f"{len(sharing)} pipelines train on GPU {gpu}: {named}{more}",
            "the scheduler lets one pipeline train at a time, and published runs keep trainers apart",
            "give each pipeline GPUs of its own to train on",
            path=f"{sharing[1].path}.train_gpus",
        )


def alone(pipelines: Sequence[PipelineSettings]) -> tuple[PipelineSettings, ...]:
    """Pipelines that have no GPU in common with any other."""
    users = Counter(gpu for pipeline in pipelines for gpu in set(pipeline.infer))
    return tuple(pipeline for pipeline in pipelines if all(users[gpu] == 1 for gpu in pipeline.infer))


def _key(pipeline: PipelineSettings, size: str) -> str:
    """The key of the spec that gives a size of the engines."""
    own, shared = pipeline.spec.train.rollout, pipeline.context.spec.train.rollout
    if own is not None and getattr(own, size) is not None:
        return f"{pipeline.path}.train.rollout.{size}"
    return f"train.rollout.{size}" if getattr(shared, size) else f"train.overrides.{ENGINE[size]}"


def _list(ids: Sequence[int]) -> str:
    return ", ".join(str(gpu) for gpu in ids)
