"""The plan as a picture: nodes, roles and GPUs, what it costs, what is staged where, the queue. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jobspec.runs.paths import array_ranges
from jobspec.units import duration, gib

if TYPE_CHECKING:
    from jobspec.launchers.slurm.forecast import Forecast
    from jobspec.megatron.shape import TrainShape
    from jobspec.plan import ContainerPlan, Plan
    from jobspec.runtime.staging.shared import Item
    from jobspec.spec.job import Pipeline

Row = tuple[str, str, str, str]
HEADER: Row = ("NODES", "N", "ROLE", "GPUS OF EACH")


def node_rows(plan: Plan, kind: str = "", pipelines: Sequence[Pipeline] = ()) -> list[Row]:
    """Nodes of one role each. Which physical nodes they are, the scheduler decides."""
    return [*_driver_rows(plan, kind, pipelines), *_service_rows(plan, kind)]


def _service_rows(plan: Plan, kind: str) -> Iterator[Row]:
    for service in plan.services:
        nodes = service.nodes
        gpus = _gpus(service.gpus, kind)
        yield (_span(nodes[0], nodes[-1]), str(len(nodes)), f"service {service.name}", gpus)


def _gpus(count: int, kind: str) -> str:
    return f"{count} {kind}".strip() if count else "none"


def _driver_rows(plan: Plan, kind: str, pipelines: Sequence[Pipeline]) -> Iterator[Row]:
    first, other = _roles(plan)
    for part in plan.parts:
        gpus = _gpus(plan.driver_gpus_of(part.first), part.gpu_type or kind)
        of = f", group {part.name}" if part.name else ""
        rest = part.indices
        if part.first == 0 and first != other:
            yield ("0", "1", f"{first}{of}", gpus)
            rest = rest[1:]
        if rest:
            yield (_span(rest[0], rest[-1]), str(len(rest)), f"{other}{of}", gpus)
    yield from _pipeline_rows(pipelines, plan.driver_gpus)


def _roles(plan: Plan) -> tuple[str, str]:
    """What the first node does, and what each of the others does."""
    of_all = [command for command in plan.commands if command.on == "all"]
    if plan.mode == "upstream" and plan.upstream is not None:
        return (f"`{plan.upstream.script}` of the checkout",) * 2
    if of_all:
        tasks = max(command.tasks_per_node for command in of_all)
        return (f"{tasks} process{'es' if tasks > 1 else ''} of the command",) * 2
    if plan.ray is not None:
        return ("Ray head, driver", "Ray worker")
    return ("the command", "nothing of the command")


def _pipeline_rows(pipelines: Sequence[Pipeline], per_node: int) -> Iterator[Row]:
    for pipeline in pipelines if per_node else ():
        for word, ids in (("trains", pipeline.train_gpus), ("generates", pipeline.infer_gpus)):
            by_node: dict[int, list[int]] = {}
            for gpu in ids:
                by_node.setdefault(gpu // per_node, []).append(gpu % per_node)
            for node, own in sorted(by_node.items()):
                yield (str(node), "1", f"{pipeline.name} {word}", f"numbers {array_ranges(sorted(own))}")


def use_rows(shape: TrainShape | None) -> list[tuple[str, str]]:
    """What a Megatron run does with its GPUs: the trainer's sizes, and the engines'."""
    if shape is None:
        return []
    gpus = shape.nodes * shape.gpus_per_node
    model = shape.tp * shape.pp * shape.cp
    sizes = [f"tp {shape.tp}", f"pp {shape.pp}", f"cp {shape.cp}", f"dp {max(1, gpus // model)}"]
    rows = [("trainer", f"{gpus} GPUs: {' x '.join(sizes)}, ep {shape.ep}")]
    if (rollout := shape.rollout) is not None and rollout.engines:
        where = "on the trainer's GPUs by turns" if rollout.colocated else "on GPUs of their own"
        each = f"{rollout.engines} of {rollout.gpus_per_engine} GPUs (tp {rollout.tp} x pp {rollout.pp})"
        rows.append(("engines", f"{each}, {where}"))
    return rows


def cost_rows(plan: Plan, kind: str, points: int) -> list[tuple[str, str]]:
    """GPU-hours at the time limit: the most that one attempt can cost."""
    hours, total = gpu_hours(plan), plan.gpus
    if not total:
        return []
    parts = [part for part in plan.parts if part.gpus_per_node]
    sizes = [f"{part.nodes} x {part.gpus_per_node} {part.gpu_type}".rstrip() for part in parts]
    size = " + ".join(sizes) if plan.nodes > 1 else "of one node"
    rows = [("GPUs", f"{total} {'' if plan.groups else kind}".strip() + f" ({size})")]
    if hours is None:
        return [*rows, ("GPU-hours", "not known: no time limit is given")]
    more = f", for each of {points} points" if points and plan.slurm.array else ""
    more += f", {plan.slurm.requeue_max + 1} attempts at most" if plan.slurm.requeue_max else ""
    return [*rows, ("GPU-hours", f"{hours:g} at the time limit of {duration(plan.time_limit_s or 0)}{more}")]


def gpu_hours(plan: Plan) -> float | None:
    if plan.time_limit_s is None:
        return None
    return round(plan.gpus * plan.time_limit_s / 3600, 2)


def stage_rows(plan: Plan, items: Sequence[Item]) -> list[tuple[str, str]]:
    """The image, what is copied to each node's disk, and what is read where it lies.

    There are no `items` where the disks are another machine's.
    """
    known = {item.plan: item for item in items}
    own = [(f"image of {one.name}", _image(one.container)) for one in plan.services if one.container]
    rows = [*([("image", _image(plan.container))] if plan.container.image else []), *own]
    for stage in plan.stage:
        item = known.get(stage)
        size = f"{_size(item.bytes)} in {item.files} files" if item and item.files else "size not known"
        where = f"to {plan.node_local} of each node" if stage.node_local else "read from shared storage"
        rows.append((f"{stage.kind} {stage.name}", f"{size}, {where}, from {stage.source}"))
    return rows


def _image(container: ContainerPlan) -> str:
    if container.cached:
        cached = container.cached
        return f"{_size(cached.bytes)}, imported from {cached.reference} to {cached.file}"
    if container.image.startswith("/"):
        return f"read from {container.image}"
    return f"{container.image}, fetched by each node"


def queue_rows(forecast: Forecast, plan: Plan) -> list[tuple[str, str]]:
    """What the scheduler answered."""
    rows = []
    if forecast.start:
        wait = forecast.start - forecast.asked
        soon = "now" if wait <= 60 else f"in {duration(wait)}"
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(forecast.start))
        rows.append(("expected start", f"{soon} ({at}) on {forecast.nodes}, as the queue is"))
    partitions = dict.fromkeys(part.slurm.partition for part in plan.components)
    where = f" in partition {', '.join(partitions)}" if all(partitions) else ""
    for gpus in forecast.gpus:
        rows.append(("idle GPUs", f"{gpus.idle} of {gpus.total} {gpus.type}".rstrip() + where))
    if forecast.unanswered:
        rows.append(("queue", f"not asked for all: {forecast.unanswered}"))
    return rows


def as_json(plan: Plan, rows: Sequence[Row], items: Sequence[Item]) -> Mapping[str, Any]:
    """The same for programs."""
    known = {item.plan: item.bytes for item in items}
    return {
        "nodes": [dict(zip(("nodes", "count", "role", "gpus"), row, strict=True)) for row in rows],
        "gpu_hours": gpu_hours(plan),
        "stage": [
            {
                "name": stage.name,
                "kind": stage.kind,
                "source": stage.source,
                "to": plan.node_local if stage.node_local else "",
                "bytes": known.get(stage) or None,
            }
            for stage in plan.stage
        ],
    }


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _size(count: int) -> str:
    return gib(count, 1) if count >= 1024**3 else f"{count / 1024**2:.1f} MiB"
