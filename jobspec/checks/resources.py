"""Whether the run fits the site: nodes, time, GPUs, CPUs, memory, workers."""

from __future__ import annotations

from collections.abc import Iterator

from jobspec.finding import Finding, error, warning
from jobspec.plan import Plan
from jobspec.spec.job import JobSpec
from jobspec.spec.site import ClusterProfile
from jobspec.units import parse_bytes, parse_time, slurm_time


def local_has_one_node(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    if plan.scheduler == "local" and plan.nodes > 1:
        yield error(
            "resources.local-nodes",
            f"the spec asks for {plan.nodes} nodes, the site profile `{plan.cluster}` is this machine alone",
            fix="use `nodes: 1`, or a site profile with `scheduler: slurm` by `--cluster`",
            path="resources.nodes",
        )


def within_limits(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    limits = profile.limits
    if limits.max_nodes and plan.nodes > limits.max_nodes:
        yield error(
            "resources.max-nodes",
            f"the spec asks for {plan.nodes} nodes, `{plan.cluster}` allows {limits.max_nodes}",
            why="`limits.max_nodes` of the site profile",
            fix=f"use {limits.max_nodes} or fewer",
            path="resources.nodes",
        )
    if limits.max_time and plan.time_limit_s and plan.time_limit_s > parse_time(limits.max_time):
        longest = slurm_time(parse_time(limits.max_time))
        yield error(
            "resources.max-time",
            f"the spec asks for {slurm_time(plan.time_limit_s)}, `{plan.cluster}` allows {longest}",
            why="`limits.max_time` of the site profile",
            fix=f"use {longest} or less; `launch.requeue` continues a longer run in further attempts",
            path="resources.time",
        )


def time_is_known(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    if plan.scheduler == "slurm" and plan.time_limit_s is None:
        yield warning(
            "resources.no-time",
            "no time limit is given, so the partition's default applies",
            fix='set `resources.time`, such as "02:00:00"',
            path="resources",
        )


def fits_a_node(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    node, resources = profile.node, spec.resources
    rows: list[tuple[str, int, int, str]] = [
        ("gpus_per_node", plan.gpus_per_node, node.gpus if plan.scheduler == "slurm" else 0, "GPUs"),
        ("cpus_per_node", resources.cpus_per_node or 0, node.cpus or 0, "CPUs"),
        ("memory", _mebibytes(resources.memory), _mebibytes(node.memory), "MiB of memory"),
    ]
    for key, needed, has, unit in rows:
        if has and needed > has:
            yield error(
                f"resources.{key.replace('_', '-')}",
                f"the spec asks for {needed} {unit} per node, a node of `{plan.cluster}` has {has}",
                fix=f"use {has} or fewer, or another site profile",
                path=f"resources.{key}",
            )


def _mebibytes(text: str | None) -> int:
    return parse_bytes(text) // 1024**2 if text else 0


def workers_fit(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    workers, nodes = spec.train.workers, plan.nodes
    if not workers:
        return
    if plan.gpus_per_node and workers > nodes * plan.gpus_per_node:
        yield error(
            "train.workers-gpus",
            f"the spec asks for {workers} workers, the run has {nodes * plan.gpus_per_node} GPUs",
            why=f"{nodes} node(s) with {plan.gpus_per_node} GPU(s) each, one worker on each GPU",
            fix=f"use {nodes * plan.gpus_per_node} workers or fewer",
            path="train.workers",
        )
    if workers % nodes:
        yield warning(
            "train.workers-uneven",
            f"{workers} workers do not spread evenly over {nodes} nodes",
            why="some nodes would do less than others" if workers > nodes else "some nodes would do nothing",
            fix=f"use a multiple of {nodes}",
            path="train.workers",
        )


RULES = (local_has_one_node, within_limits, time_is_known, fits_a_node, workers_fit)
