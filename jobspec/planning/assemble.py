"""The Plan from its parts: the spec, the site profile and the framework's own plan."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from jobspec.evidence.repo_tests import ONLY_ASKED
from jobspec.plan import (
    HUB_TOKEN,
    AbortPlan,
    CollectPlan,
    ContainerPlan,
    ExpectPlan,
    GroupPlan,
    HelpersPlan,
    ImportProof,
    LearningPlan,
    Plan,
    RayPlan,
    ServicePlan,
    SlurmPlan,
    StagePlan,
    StallPlan,
)
from jobspec.planning.container import mounts_for
from jobspec.planning.lookups import Lookups
from jobspec.planning.paths import absolute, home
from jobspec.planning.repos import proof_root
from jobspec.spec.paths import Origin, OriginKind
from jobspec.units import parse_bytes, parse_patience, parse_time, slurm_time

if TYPE_CHECKING:
    from jobspec.finding import Finding
    from jobspec.frameworks.base import Context, FrameworkPlan, Level
    from jobspec.planning.repos import RepoSource
    from jobspec.runs.avoided import Avoided
    from jobspec.spec.find_site import Elsewhere
    from jobspec.spec.group_sites import GroupSite
    from jobspec.spec.job import JobSpec, Model
    from jobspec.spec.site import ClusterProfile


@dataclass
class Resolution:
    """One resolution under way: its inputs, the findings so far, and the origins of defaults."""

    spec: JobSpec
    profile: ClusterProfile
    base: Path
    env: Mapping[str, str]
    lookups: Lookups
    level_given: bool
    allow: tuple[str, ...] = ()
    findings: list[Finding] = field(default_factory=list)
    origins: dict[str, Origin] = field(default_factory=dict)
    given: Mapping[str, object] = field(default_factory=dict)  # `resources` as the spec has it
    mode_given: bool = True
    elsewhere: Elsewhere | None = None
    services: tuple[ServicePlan, ...] = ()
    gpus_per_node: int = 0  # those of services included
    fetch: bool = False  # the servers may be asked, as submission does
    avoided: tuple[Avoided, ...] = ()
    groups: tuple[GroupSite, ...] = ()

    def default(self, path: str, kind: OriginKind, where: str = "") -> None:
        """Note the origin of a value that the spec does not give."""
        self.origins[path] = Origin(kind, where)


def assemble(
    resolution: Resolution, framework_plan: FrameworkPlan, context: Context, repos: tuple[RepoSource, ...]
) -> Plan:
    """The whole Plan. Findings about the model and the data sets go to `resolution.findings`."""
    spec, profile, hf_home = resolution.spec, resolution.profile, context.hf_home
    stage, findings = resolution.lookups.inputs(spec, resolution.base, hf_home, profile.scheduler)
    resolution.findings += findings
    if resolution.fetch:
        pinned = [resolution.lookups.pinned(item, resolution.env) for item in stage]
        stage = tuple(item for item, _ in pinned)
        resolution.findings += [finding for _, found in pinned for finding in found]
    checkpoint = absolute(spec.checkpoint.dir, resolution.base, resolution.env) if spec.checkpoint.dir else ""
    groups = _groups(resolution)
    with_ray = spec.launch.mode == "ray" and framework_plan.ray_mode == "external"
    plan = Plan(
        name=spec.name,
        framework=spec.framework,
        cluster=profile.name,
        scheduler=profile.scheduler,
        mode=spec.launch.mode,
        nodes=spec.resources.nodes,
        gpus_per_node=resolution.gpus_per_node,
        groups=groups,
        container=context.container,
        env=dict(sorted({**framework_plan.env, **context.container.env}.items())),
        secrets=spec.secrets,
        stage_secrets=(HUB_TOKEN,) if any(item.from_hub for item in stage) else (),
        repos=tuple(repo.plan for repo in repos),
        proofs=tuple(ImportProof(r.prove, proof_root(r), r.plan.name) for r in repos if r.prove),
        stage=(*_loaded(stage, spec.model, framework_plan.loads_model), *framework_plan.stage),
        helpers=_helpers(resolution, repos),
        ray=_ray(resolution, context.gpus_per_node) if with_ray else None,
        upstream=framework_plan.upstream if spec.launch.mode == "upstream" else None,
        checks=framework_plan.checks,
        services=resolution.services,
        commands=framework_plan.commands,
        abort_when=(*framework_plan.abort_when, *_conditions(spec)),
        stall=StallPlan(parse_patience(spec.watch.stall.after), spec.watch.stall.action),
        collect=CollectPlan(
            (*spec.artifacts.collect, *framework_plan.collect), parse_bytes(spec.artifacts.max_size)
        ),
        made=framework_plan.made,
        slurm=groups[0].slurm if groups else _slurm(resolution, spec, profile, resolution.gpus_per_node),
        expect=_expect(spec, framework_plan.expect, context.level),
        runs=str(profile.paths.runs),
        node_local=profile.paths.node_local,
        hf_home=hf_home,
        offline=spec.hf_cache.offline,
        interface=profile.network.interface or "",
        subnet=profile.network.subnet or "",
        checkpoint_dir=checkpoint,
        hold=spec.launch.hold,
        hold_idle_s=parse_patience(spec.launch.hold_idle) if spec.launch.hold_idle else None,
        kept_ray=spec.launch.kept_ray,
        time_limit_s=parse_time(spec.resources.time) if spec.resources.time else None,
    )
    services = tuple(
        replace(service, container=_mounted(plan, service.container)) for service in plan.services
    )
    return replace(plan, container=_mounted(plan, plan.container), services=services)


C = TypeVar("C", ContainerPlan, "ContainerPlan | None")


def _mounted(plan: Plan, container: C) -> C:
    return container and replace(container, mounts=mounts_for(plan, container))


def _loaded(stage: Sequence[StagePlan], model: Model | None, by_default: bool) -> Iterator[StagePlan]:
    """The items, with the mark on the model that it is loaded before it is trusted."""
    wanted = by_default if model is None or model.load is None else model.load
    for item in stage:
        yield replace(item, load=wanted) if item.kind == "model" else item


def _conditions(spec: JobSpec) -> Iterator[AbortPlan]:
    if spec.metrics.abort_when:
        from jobspec.metrics.requirements import parse_condition

        yield from (parse_condition(text) for text in spec.metrics.abort_when)


def find_hf_home(resolution: Resolution) -> str:
    """The cache of the spec, else of the site, else on this machine of the user; empty without any."""
    if resolution.spec.hf_cache.home:
        return absolute(resolution.spec.hf_cache.home, resolution.base, resolution.env)
    if resolution.profile.paths.hf_home:
        resolution.default("hf_cache.home", "cluster", resolution.profile.name)
        return resolution.profile.paths.hf_home
    if resolution.profile.scheduler != "local":
        return ""
    resolution.default("hf_cache.home", "env" if resolution.env.get("HF_HOME") else "default", "HF_HOME")
    return os.path.abspath(home(resolution.env.get("HF_HOME") or "~/.cache/huggingface", resolution.env))  # noqa: PTH100


def _helpers(resolution: Resolution, repos: Sequence[RepoSource]) -> HelpersPlan | None:
    """The helpers of a checkout or a package; none where a spec that names neither is allowed."""
    helpers = resolution.spec.mcore_helpers
    if helpers is None:
        return None
    if helpers.package is not None:
        return HelpersPlan(package=helpers.package)
    folder = next((repo.plan.path for repo in repos if repo.plan.name == helpers.repo), None)
    if folder is None:
        return None
    return HelpersPlan(source=os.path.normpath(Path(folder) / helpers.subdir))


def _ray(resolution: Resolution, gpus: int) -> RayPlan:
    ports = resolution.profile.network.ray_ports
    return RayPlan(
        port=ports.head,
        port_min=ports.worker_min,
        port_max=ports.worker_max,
        num_cpus=resolution.spec.resources.cpus_per_node or resolution.profile.node.cpus,
        num_gpus=gpus,
        join_timeout_s=float(resolution.spec.launch.join_timeout),
    )


def _groups(resolution: Resolution) -> tuple[GroupPlan, ...]:
    """In the spec's order, each behind the nodes of those before it."""
    first = (0, *accumulate(site.group.nodes for site in resolution.groups))
    return tuple(
        GroupPlan(
            name=site.group.name,
            first=first[index],
            nodes=site.group.nodes,
            gpus_per_node=site.gpus,
            gpu_type=site.spec.resources.gpu_type or "",
            cpus_per_node=site.spec.resources.cpus_per_node or site.profile.node.cpus,
            slurm=_slurm(resolution, site.spec, site.profile, site.gpus),
        )
        for index, site in enumerate(resolution.groups)
    )


def _slurm(resolution: Resolution, spec: JobSpec, profile: ClusterProfile, gpus: int) -> SlurmPlan:
    """What nodes with `gpus` GPUs are asked for by `spec`, that of the run or of one of its groups."""
    site = profile.slurm
    resources, requeue = spec.resources, spec.launch.requeue
    if profile.scheduler == "local":
        return SlurmPlan(requeue_max=0, grace_s=requeue.grace)
    kind = site.gpu_types.get(resources.gpu_type or "")
    # Two jobs on a node would use the same GPUs.
    uncounted = site.gpus == "none" and gpus > 0
    several = resolution.spec.resources.nodes > 1
    return SlurmPlan(
        account=site.account or "",
        partition=site.partition or "",
        qos=site.qos or "",
        reservation=site.reservation or "",
        constraint=site.constraint or "",
        exclude=site.exclude or "",
        avoid_listed=site.avoid_listed is not False,
        avoided=tuple(entry.node for entry in resolution.avoided),
        licenses=site.licenses or "",
        nice=site.nice or 0,
        nodelist=spec.slurm.nodelist or "",
        begin=spec.slurm.begin or "",
        dependency=_dependency(resolution),
        mail_events=site.mail.events,
        mail_user=site.mail.user or "",
        gpu_type=kind.gres or "" if kind else "",
        time=slurm_time(parse_time(resources.time)) if resources.time else "",
        gpus=site.gpus,
        exclusive=several or spec.launch.mode == "upstream" or uncounted
        if resources.exclusive is None
        else resources.exclusive,
        memory=resources.memory or "",
        cpus_per_task=resources.cpus_per_node or profile.node.cpus,
        mpi=site.mpi or "",
        extra_sbatch=site.extra_sbatch,
        requeue_max=requeue.max_attempts - 1,
        expedite=site.requeue == "expedite" and requeue.max_attempts > 1,
        grace_s=requeue.grace,
    )


def _dependency(resolution: Resolution) -> tuple[str, ...]:
    """On job ids. What cannot hold goes to `resolution.findings`."""
    texts = resolution.spec.slurm.dependency
    if not texts:
        return ()
    from jobspec.planning.dependencies import on_jobs

    profile = resolution.profile
    jobs, findings = on_jobs(texts, profile.paths.runs, profile.name, resolution.env)
    resolution.findings += findings
    return jobs


def _expect(spec: JobSpec, of_framework: ExpectPlan, level: Level) -> ExpectPlan:
    """The framework's expectations, with those of the spec added."""
    learning, stated = spec.metrics.learning, level.stated_in(of_framework)
    replaced = dict.fromkeys(ONLY_ASKED.format(check.repo) for check in spec.coverage.checks_only)
    return replace(
        stated,
        limitations=(*stated.limitations, *replaced),
        variants=spec.coverage.variants or of_framework.variants,
        steps=of_framework.steps or spec.train.steps or 0,
        metrics_require=tuple(dict.fromkeys((*of_framework.metrics_require, *spec.metrics.require))),
        learning=LearningPlan(learning.metric, learning.direction, learning.min_change)
        if learning
        else of_framework.learning,
        files=tuple(dict.fromkeys((*of_framework.files, *spec.artifacts.require))),
    )
