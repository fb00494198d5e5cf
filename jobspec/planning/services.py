"""The services of a plan from those of a spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.frameworks.command_files import check_words, settled_words
from jobspec.plan import ReadyPlan, ServicePlan
from jobspec.planning.container import settle_container

if TYPE_CHECKING:
    from jobspec.finding import Finding
    from jobspec.frameworks.base import Context
    from jobspec.planning.assemble import Resolution
    from jobspec.spec.job import JobSpec
    from jobspec.spec.services import Ready, Service


def planned_services(spec: JobSpec, base: Path, repo_paths: Mapping[str, str]) -> tuple[ServicePlan, ...]:
    """In the spec's order, which is that of their start; scripts by their absolute paths."""
    return tuple(
        ServicePlan(
            name=service.name,
            argv=settled_words(service.command, service.shell, spec, base, repo_paths),
            shell=service.shell,
            nodes=_nodes(service, spec),
            gpus=service.gpus,
            port=service.port if isinstance(service.port, int) else 0,
            ready=_ready(service.ready),
            required=service.required,
        )
        for service in spec.services
    )


def own_containers(resolution: Resolution, fetch: bool) -> Iterator[ServicePlan]:
    """The services with their own containers; none where the site starts no containers (a rule says so).

    Findings about the images go to `resolution.findings`.
    """
    profile, lookups = resolution.profile, resolution.lookups
    for index, (service, plan) in enumerate(zip(resolution.spec.services, resolution.services, strict=True)):
        if service.container is None or profile.container.runtime == "none":
            yield plan
            continue
        at = f"services[{index}]"
        made = settle_container(service.container, profile, resolution.base, resolution.env, lookups.far)
        if made.cached:
            where = f"imported from {made.cached.reference}"
            resolution.default(f"{at}.container.image", "cluster", where)
        if service.container.python is None:
            resolution.default(f"{at}.container.python", "default", "")
        made, told = lookups.image(made, profile, fetch)
        resolution.findings += [replace(item, path=f"{at}.{item.path}") for item in told]
        yield replace(plan, container=made)


def _nodes(service: Service, spec: JobSpec) -> tuple[int, ...]:
    """With `nodes` the last ones: the head has the driver. Too many are a finding of the checks."""
    count, first = spec.resources.nodes, 0
    if service.on == "all":
        return tuple(range(count))
    for group in spec.groups:
        if service.on == group.name:
            return tuple(range(first, first + group.nodes))
        first += group.nodes
    if service.nodes is None:
        return (0,)
    return tuple(range(max(0, count - service.nodes), count))


def _ready(ready: Ready) -> ReadyPlan:
    kind = "http" if ready.http is not None else "log" if ready.log is not None else "tcp"
    return ReadyPlan(kind, ready.http or ready.log or "", ready.status, float(ready.timeout))


def check_service_files(context: Context) -> Iterator[Finding]:
    """Findings about the relative files that the services' commands name."""
    for index, service in enumerate(context.spec.services):
        yield from check_words(context, service.command, service.shell, f"services[{index}].command")
