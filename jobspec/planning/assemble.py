"""The Plan from its parts: what the spec gives, what the site profile gives, what the framework chose."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.plan import (
    AbortPlan,
    CollectPlan,
    ContainerPlan,
    ExpectPlan,
    HelpersPlan,
    ImportProof,
    LearningPlan,
    Mount,
    Plan,
    RayPlan,
    SlurmPlan,
)
from jobspec.planning.lookups import Lookups, home
from jobspec.planning.repos import is_folder
from jobspec.rendering.step_prefix import mounts_for
from jobspec.spec.paths import Origin, OriginKind
from jobspec.units import parse_bytes, parse_time, slurm_time

if TYPE_CHECKING:
    from jobspec.finding import Finding
    from jobspec.frameworks.base import FrameworkPlan, Level
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


def assemble(
    work: Work, chosen: FrameworkPlan, level: Level, gpus: int, repos: tuple[RepoSource, ...]
) -> Plan:
    """The whole Plan; what is found on the way goes to the work's findings."""
    spec, profile = work.spec, work.profile
    hf_home = find_hf_home(work)
    stage, findings = work.lookups.stage(spec, work.base, hf_home)
    work.findings += findings
    checkpoint = _folder(work, spec.checkpoint.dir) if spec.checkpoint.dir else ""
    container_env = {**profile.env, **spec.container.env}
    plan = Plan(
        name=spec.name,
        framework=spec.framework,
        cluster=profile.name,
        scheduler=profile.scheduler,
        mode=spec.launch.mode,
        nodes=spec.resources.nodes,
        gpus_per_node=gpus,
        container=_container(work, container_env),
        env=dict(sorted({**chosen.env, **container_env}.items())),
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
        expect=_expect(spec, chosen.expect, level),
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


def _folder(work: Work, value: str) -> str:
    """An absolute path; a relative one counts from the spec's folder."""
    return os.path.normpath(work.base / home(value, work.env))


def find_hf_home(work: Work) -> str:
    """The spec's cache, the site's, or on this machine the user's own; empty when none is known."""
    if work.spec.hf_cache.home:
        return _folder(work, work.spec.hf_cache.home)
    if work.profile.paths.hf_home:
        work.default("hf_cache.home", "cluster", work.profile.name)
        return work.profile.paths.hf_home
    if work.profile.scheduler != "local":
        return ""
    work.default("hf_cache.home", "env" if work.env.get("HF_HOME") else "default", "HF_HOME")
    return os.path.abspath(home(work.env.get("HF_HOME") or "~/.cache/huggingface", work.env))  # noqa: PTH100


def _container(work: Work, env: Mapping[str, str]) -> ContainerPlan:
    spec, site = work.spec.container, work.profile.container
    bare = site.runtime == "none"
    own = work.profile.scheduler == "local" and bare
    if spec.python is None:
        work.default("container.python", "default", "this interpreter" if own else "")
    return ContainerPlan(
        runtime=site.runtime,
        image="" if bare else _image(work, spec.image or ""),
        python=spec.python or (sys.executable if own else "python3"),
        mounts=tuple(Mount(_folder(work, m.source), m.target, m.read_only) for m in spec.mounts),
        env=dict(sorted(env.items())),
        workdir=spec.workdir or "",
        mount_home=site.mount_home,
        remap_root=site.remap_root,
    )


def _image(work: Work, image: str) -> str:
    """An absolute path for an image that is a file or a folder; a registry's name stays as it is.

    Pyxis takes `x.sqsh` without a slash for a registry image (pyxis#127): a file's path is always absolute.
    """
    is_path = image.startswith(("/", "./", "../", "~")) or image.endswith(
        (".sqsh", ".sqfs", ".squashfs", ".sif")
    )
    cached = Path(work.profile.container.image_cache or "/nonexistent") / image
    is_name = is_path and not image.startswith(("/", ".", "~"))
    if is_name and os.path.isfile(cached):  # noqa: PTH113 - never raises
        return str(cached)
    return _folder(work, image) if is_path or (image and is_folder(work.base / image)) else image


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
        chosen,
        level=level.name,
        variants=spec.coverage.variants or chosen.variants,
        steps=chosen.steps or spec.train.steps or 0,
        metrics_require=tuple(dict.fromkeys((*chosen.metrics_require, *spec.metrics.require))),
        learning=LearningPlan(learning.metric, learning.direction, learning.min_change)
        if learning
        else chosen.learning,
        files=tuple(dict.fromkeys((*chosen.files, *spec.artifacts.require))),
        limitations=tuple(dict.fromkeys((*chosen.limitations, *level.not_proved))),
    )
