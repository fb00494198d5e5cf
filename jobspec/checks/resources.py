"""Whether the run fits the site: nodes, time, GPUs, CPUs, memory, workers."""

from __future__ import annotations

from collections.abc import Iterator

from jobspec.checks.sbatch_options import names_cpus, names_memory
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
    nodes, nodes_key = _limit(plan, profile, "max_nodes")
    if nodes and plan.nodes > int(nodes):
        yield error(
            "resources.max-nodes",
            f"the spec asks for {plan.nodes} nodes, `{plan.cluster}` allows {nodes}",
            why=f"`{nodes_key}` of the site profile",
            fix=f"use {nodes} or fewer",
            path="resources.nodes",
        )
    time, time_key = _limit(plan, profile, "max_time")
    if time and plan.time_limit_s and plan.time_limit_s > parse_time(time):
        longest = slurm_time(parse_time(time))
        yield error(
            "resources.max-time",
            f"the spec asks for {slurm_time(plan.time_limit_s)}, `{plan.cluster}` allows {longest}",
            why=f"`{time_key}` of the site profile",
            fix=f"use {longest} or less; `launch.requeue` continues a longer run in further attempts",
            path="resources.time",
        )


def _limit(plan: Plan, profile: ClusterProfile, key: str) -> tuple[str, str]:
    """The limit that holds for the run's partition, and its key; empty where there is none.

    A job in several partitions may start in any of them, so only one partition's own limit is certain.
    """
    of_partition = profile.limits.partitions.get(plan.slurm.partition)
    own = getattr(of_partition, key, None)
    if own is not None:
        return str(own), f"limits.partitions.{plan.slurm.partition}.{key}"
    return str(getattr(profile.limits, key) or ""), f"limits.{key}"


def beside_the_gpus(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    """CPUs and memory that nobody asks for: many sites give one core and its share of the memory."""
    slurm = plan.slurm
    if spec.resources.gpu_type and not plan.gpus_per_node:
        what = "a kind of GPU is named, and no GPU is asked for"
        fix = "set `resources.gpus_per_node`, or remove it"
        yield warning("resources.unused", what, fix=fix, path="resources.gpu_type")
    if plan.scheduler != "slurm" or slurm.exclusive or not plan.gpus_per_node:
        return
    missing = []
    if not slurm.cpus_per_task and not names_cpus(slurm.extra_sbatch):
        missing.append(("CPUs", "cpus_per_node", "node.cpus", "often one core"))
    if not slurm.memory and not names_memory(slurm.extra_sbatch):
        missing.append(("memory", "memory", "", "often a core's share"))
    for what, key, of_site, usual in missing:
        yield warning(
            "resources.site-default",
            f"beside the GPUs the run asks for no {what}",
            f"the site's default holds: {usual}",
            f"set `resources.{key}`" + (f", or `{of_site}` in the profile" if of_site else ""),
            path="resources",
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
    gpus = sum(part.nodes * plan.driver_gpus_of(part.first) for part in plan.parts)
    if gpus and workers > gpus:
        each = " and ".join(
            f"{p.nodes} node(s) with {plan.driver_gpus_of(p.first)} GPU(s)" for p in plan.parts
        )
        yield error(
            "train.workers-gpus",
            f"the spec asks for {workers} workers, the run has {gpus} GPUs",
            why=f"{each} each, one worker on each GPU",
            fix=f"use {gpus} workers or fewer",
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


OF_A_GROUP = (within_limits, beside_the_gpus, fits_a_node)
RULES = (local_has_one_node, time_is_known, workers_fit)
