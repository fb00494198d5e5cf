"""The Plan from its parts: what the spec gives, what the site profile gives, what the framework chose."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.plan import (
    AbortPlan,
    CollectPlan,
    ExpectPlan,
    HelpersPlan,
    ImportProof,
    LearningPlan,
    Plan,
    RayPlan,
    SlurmPlan,
)
from jobspec.planning.container import mounts_for
from jobspec.planning.lookups import Lookups
from jobspec.planning.paths import absolute, home
from jobspec.spec.paths import Origin, OriginKind
from jobspec.units import parse_bytes, parse_time, slurm_time

if TYPE_CHECKING:
    from jobspec.finding import Finding
    from jobspec.frameworks.base import Context, FrameworkPlan, Level
    from jobspec.planning.repos import RepoSource
    from jobspec.spec.job import JobSpec
    from jobspec.spec.site import ClusterProfile


@dataclass
class Work:
    """What one resolution collects on its way."""

    spec: JobSpec
    profile: ClusterProfile
    base: Path
    env: Mapping[str, str]
    lookups: Lookups
    level_given: bool
    allow: tuple[str, ...] = ()
    findings: list[Finding] = field(default_factory=list)
    chosen: dict[str, Origin] = field(default_factory=dict)

    def default(self, path: str, kind: OriginKind, where: str = "") -> None:
        """Note where a value came from that the spec does not give."""
        self.chosen[path] = Origin(kind, where)


def assemble(work: Work, chosen: FrameworkPlan, context: Context, repos: tuple[RepoSource, ...]) -> Plan:
    """The whole Plan; what is found on the way goes to the work's findings."""
    spec, profile, hf_home = work.spec, work.profile, context.hf_home
    gpus = context.gpus_per_node
    stage, findings = work.lookups.inputs(spec, work.base, hf_home, profile.scheduler)
    work.findings += findings
    checkpoint = absolute(spec.checkpoint.dir, work.base, work.env) if spec.checkpoint.dir else ""
    plan = Plan(
        name=spec.name,
        framework=spec.framework,
        cluster=profile.name,
        scheduler=profile.scheduler,
        mode=spec.launch.mode,
        nodes=spec.resources.nodes,
        gpus_per_node=gpus,
        container=context.container,
        env=dict(sorted({**chosen.env, **context.container.env}.items())),
        secrets=spec.secrets,
        repos=tuple(repo.plan for repo in repos),
        proofs=tuple(ImportProof(r.prove, r.plan.path, r.plan.name) for r in repos if r.prove),
        stage=(*stage, *chosen.stage),
        helpers=_helpers(work, repos),
        ray=_ray(work, gpus) if spec.launch.mode == "ray" and chosen.ray_mode == "external" else None,
        upstream=chosen.upstream if spec.launch.mode == "upstream" else None,
        checks=chosen.checks,
        commands=chosen.commands,
        abort_when=(*chosen.abort_when, *_conditions(spec)),
        collect=CollectPlan((*spec.artifacts.collect, *chosen.collect), parse_bytes(spec.artifacts.max_size)),
        made=chosen.made,
        slurm=_slurm(work),
        expect=_expect(spec, chosen.expect, context.level),
        runs=str(profile.paths.runs),
        node_local=profile.paths.node_local,
        hf_home=hf_home,
        offline=spec.hf_cache.offline,
        interface=profile.network.interface or "",
        subnet=profile.network.subnet or "",
        checkpoint_dir=checkpoint,
        hold=spec.launch.hold,
        time_limit_s=parse_time(spec.resources.time) if spec.resources.time else None,
    )
    return replace(plan, container=replace(plan.container, mounts=mounts_for(plan)))


def _conditions(spec: JobSpec) -> Iterator[AbortPlan]:
    if spec.metrics.abort_when:
        from jobspec.metrics.requirements import parse_condition

        yield from (parse_condition(text) for text in spec.metrics.abort_when)


def find_hf_home(work: Work) -> str:
    """The spec's cache, the site's, or on this machine the user's own; empty when none is known."""
    if work.spec.hf_cache.home:
        return absolute(work.spec.hf_cache.home, work.base, work.env)
    if work.profile.paths.hf_home:
        work.default("hf_cache.home", "cluster", work.profile.name)
        return work.profile.paths.hf_home
    if work.profile.scheduler != "local":
        return ""
    work.default("hf_cache.home", "env" if work.env.get("HF_HOME") else "default", "HF_HOME")
    return os.path.abspath(home(work.env.get("HF_HOME") or "~/.cache/huggingface", work.env))  # noqa: PTH100


def _helpers(work: Work, repos: Sequence[RepoSource]) -> HelpersPlan | None:
    """From a checkout or an installed package; the loader has seen that it is exactly one of them."""
    wanted = work.spec.mcore_helpers
    if wanted is None:
        return None
    if wanted.package is not None:
        return HelpersPlan(package=wanted.package)
    folder = next(repo.plan.path for repo in repos if repo.plan.name == wanted.repo)
    return HelpersPlan(source=os.path.normpath(Path(folder) / wanted.subdir))


def _ray(work: Work, gpus: int) -> RayPlan:
    ports = work.profile.network.ray_ports
    return RayPlan(
        port=ports.head,
        port_min=ports.worker_min,
        port_max=ports.worker_max,
        num_cpus=work.spec.resources.cpus_per_node or work.profile.node.cpus,
        num_gpus=gpus,
        join_timeout_s=float(work.spec.launch.join_timeout),
    )


def _slurm(work: Work) -> SlurmPlan:
    site, asked, requeue = work.profile.slurm, work.spec.resources, work.spec.launch.requeue
    if work.profile.scheduler == "local":
        return SlurmPlan(requeue_max=0, grace_s=requeue.grace)
    return SlurmPlan(
        account=site.account or "",
        partition=site.partition or "",
        qos=site.qos or "",
        time=slurm_time(parse_time(asked.time)) if asked.time else "",
        gpus=site.gpus,
        exclusive=asked.nodes > 1 or work.spec.launch.mode == "upstream"
        if asked.exclusive is None
        else asked.exclusive,
        memory=asked.memory or "",
        cpus_per_task=asked.cpus_per_node or work.profile.node.cpus,
        mpi=site.mpi or "",
        extra_sbatch=site.extra_sbatch,
        requeue_max=requeue.max_attempts - 1,
        grace_s=requeue.grace,
    )


def _expect(spec: JobSpec, chosen: ExpectPlan, level: Level) -> ExpectPlan:
    """The framework's expectations with the spec's own on top."""
    learning = spec.metrics.learning
    return replace(
        level.stated_in(chosen),
        variants=spec.coverage.variants or chosen.variants,
        steps=chosen.steps or spec.train.steps or 0,
        metrics_require=tuple(dict.fromkeys((*chosen.metrics_require, *spec.metrics.require))),
        learning=LearningPlan(learning.metric, learning.direction, learning.min_change)
        if learning
        else chosen.learning,
        files=tuple(dict.fromkeys((*chosen.files, *spec.artifacts.require))),
    )
