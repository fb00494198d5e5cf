"""Rules over services: their nodes, GPUs and ports, and the modes that can have them."""

from __future__ import annotations

from collections.abc import Iterator

from jobspec.finding import Finding, error, warning
from jobspec.plan import GroupPlan, Plan
from jobspec.spec.job import JobSpec
from jobspec.spec.site import ClusterProfile


def mode_has_services(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    if plan.services and plan.mode == "upstream":
        yield error(
            "service.upstream",
            "mode `upstream` has no services",
            "the framework's own script starts Ray before the agents, with all GPUs and no addresses",
            "use `launch: {mode: ray}`",
            path="services",
        )


def site_starts_containers(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    for index, service in enumerate(spec.services):
        if service.container is not None and profile.container.runtime == "none":
            what = f"`{plan.cluster}` starts no containers, and service `{service.name}` has one of its own"
            why = "`container.runtime` of the site profile is `none`"
            fix = "use a site profile with a runtime, or remove `container`: it runs on the node then"
            yield error("service.no-runtime", what, why, fix, path=f"services[{index}].container")


def one_component_has_the_step(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    for index, (service, planned) in enumerate(zip(spec.services, plan.services, strict=False)):
        if service.container is not None and plan.component_of(planned.nodes) is None:
            yield error(
                "service.components",
                f"service `{service.name}` has a container of its own, and nodes of several components",
                "no step has nodes of two components of a heterogeneous job",
                "write a service for each group, by `on`, or remove `container`",
                path=f"services[{index}].container",
            )


def nodes_are_there(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    for index, service in enumerate(spec.services):
        if service.nodes is not None and service.nodes > plan.nodes:
            yield error(
                "service.nodes",
                f"service `{service.name}` asks for {service.nodes} nodes, the run has {plan.nodes}",
                fix=f"use {plan.nodes} or fewer, or `on: all`",
                path=f"services[{index}].nodes",
            )


def gpus_are_there(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    """As a node has GPUs, so many may be given away on it, and the driver gets the same number everywhere."""
    users = [index for index, service in enumerate(plan.services) if service.gpus]
    if not users:
        return
    for part in plan.parts:
        yield from _gpus_of_part(plan, part, f"services[{users[-1]}].gpus")
    if "CUDA_VISIBLE_DEVICES" in plan.env:
        what = "`CUDA_VISIBLE_DEVICES` is set, and services have GPUs of their own"
        why = "jobspec sets it to tell the driver's GPUs from theirs"
        here = "CUDA_VISIBLE_DEVICES" in spec.container.env
        fix = "remove it" if here else f"remove it from `env` of the site profile `{plan.cluster}`"
        path = "container.env.CUDA_VISIBLE_DEVICES" if here else ""
        yield error("service.visible-devices", what, why, fix, path=path)


def _gpus_of_part(plan: Plan, part: GroupPlan, path: str) -> Iterator[Finding]:
    """A group of which services take everything is one for services: only equal nodes are then a surprise."""
    taken = {node: plan.service_gpus(node) for s in plan.services for node in s.nodes if node in part.indices}
    if not any(taken.values()):
        return
    fullest = max(taken, key=lambda node: (taken[node], -node))
    sums = " + ".join(f"{s.gpus} of `{s.name}`" for s in plan.services if s.gpus and fullest in s.nodes)
    left = part.gpus_per_node - taken[fullest]
    key = f"`gpus_per_node` of group `{part.name}`" if part.name else "`resources.gpus_per_node`"
    if left < 0:
        yield error(
            "service.gpus",
            f"services take {taken[fullest]} GPUs of node {fullest} ({sums}), it has {part.gpus_per_node}",
            fix=f"lower `gpus`, put them on different nodes, or raise {key}",
            path=path,
        )
        return
    if not left and not plan.groups:
        what = f"services take all {part.gpus_per_node} GPUs of node {fullest} ({sums})"
        why, fix = "Ray and the driver get none, on no node", "leave some for them if they train"
        yield warning("service.no-gpus-left", what, why, fix, path=path)
    idle = sum(taken[fullest] - taken.get(node, 0) for node in part.indices)
    if idle:
        each = f"each node of group `{part.name}`" if part.name else "each node"
        yield warning(
            "service.idle-gpus",
            f"{idle} GPUs have nothing to do: the driver has {left} on {each}, "
            f"as many as node {fullest} has left",
            "frameworks want the same number on all nodes",
            "spread the services evenly, such as by `on: all`",
            path=path,
        )


def ports_are_apart(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    for index, service in enumerate(plan.services):
        path = f"services[{index}].port"
        for other in plan.services[:index] if service.port else ():
            if other.port == service.port and set(other.nodes) & set(service.nodes):
                what = f"services `{other.name}` and `{service.name}` have port {service.port} on one node"
                yield error("service.port", what, fix="give another one, or leave it out", path=path)
        ray = plan.ray
        if ray is not None and (service.port == ray.port or ray.port_min <= service.port <= ray.port_max):
            yield error(
                "service.port",
                f"port {service.port} of service `{service.name}` is one of Ray's",
                f"`network.ray_ports` of `{plan.cluster}`: {ray.port}, {ray.port_min}-{ray.port_max}",
                "give another one, or leave it out",
                path=path,
            )


RULES = (
    mode_has_services,
    site_starts_containers,
    one_component_has_the_step,
    nodes_are_there,
    gpus_are_there,
    ports_are_apart,
)
