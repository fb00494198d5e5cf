"""Spec + site profile + framework -> Plan.

Reads the states of checkouts and the names in a Hugging Face cache; writes nothing, submits nothing.
Problems of the user's input become findings. The Plan is missing only where an error leaves nothing
sensible to plan; the rules over a finished plan live in `jobspec.checks`.
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from jobspec.checks import check, check_secrets
from jobspec.cluster import DEFAULT_CLUSTER
from jobspec.containers import mounts_for
from jobspec.finding import Finding, JobspecError, error
from jobspec.finding import allow as allow_rules
from jobspec.frameworks.base import Context, Framework, FrameworkPlan, Level
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
    StagePlan,
)
from jobspec.sources import (
    RepoSource,
    hidden_from_bundle,
    missing_script,
    missing_sources,
    read_repos,
    stage_plans,
)
from jobspec.spec.paths import Origin, OriginKind
from jobspec.spec.text import one_of
from jobspec.units import parse_bytes, parse_time, slurm_time

if TYPE_CHECKING:
    from jobspec.checks.megatron import Training
    from jobspec.cluster import LoadedCluster
    from jobspec.megatron.architecture import Architecture
    from jobspec.spec.cluster_model import ClusterProfile
    from jobspec.spec.load import LoadedSpec
    from jobspec.spec.model import JobSpec, Model

T = TypeVar("T")


@dataclass(frozen=True)
class Resolved:
    """A spec with everything around it looked up. `plan` is None when errors left nothing to plan.

    `loaded` and `spec` are interpolated; `repos` carries the git states that the plan was made from.
    `training` is there for Megatron runs.
    """

    plan: Plan | None
    findings: tuple[Finding, ...]
    spec: JobSpec
    loaded: LoadedSpec
    cluster: LoadedCluster
    level: Level | None = None
    repos: tuple[RepoSource, ...] = ()
    chosen: Mapping[str, Origin] = field(default_factory=dict)
    training: Training | None = None

    @property
    def hooks(self) -> tuple[str, ...]:
        return self.cluster.profile.hooks.setup

    @cached_property
    def origins(self) -> Mapping[str, Origin]:
        """Dotted path -> where its value came from, what resolution chose included."""
        return {**self.loaded.origins, **self.chosen}


@dataclass
class Lookups:
    """What was read from disks, kept over the points of a sweep: a checkout is asked for its state once."""

    _kept: dict[object, Any] = field(default_factory=dict)

    def profile(self, profile: ClusterProfile, env: Mapping[str, str]) -> ClusterProfile:
        return self._once(("profile", id(profile)), lambda: absolute_profile(profile, env))

    def repos(
        self, spec: JobSpec, base: Path, runs: str, fetch: bool
    ) -> tuple[tuple[RepoSource, ...], list[Finding]]:
        return self._once((spec.repos, base), lambda: read_repos(spec, base, runs, fetch))

    def stage(self, spec: JobSpec, base: Path, hf_home: str) -> tuple[tuple[StagePlan, ...], list[Finding]]:
        return self._once(
            (_key(spec.model), spec.data, base, hf_home), lambda: stage_plans(spec, base, hf_home)
        )

    def model(
        self, spec: JobSpec, base: Path, hf_home: str, named: str
    ) -> tuple[Architecture | None, list[Finding]]:
        from jobspec.models import read_architecture

        return self._once(
            ("model", _key(spec.model), base, hf_home, named),
            lambda: read_architecture(spec.model, base, hf_home, named),
        )

    def on_disk(self, plan: Plan) -> tuple[Finding, ...]:
        """What the files named in a plan look like from here."""
        script = (plan.upstream.root, plan.upstream.script) if plan.upstream is not None else ()
        key = (plan.stage, plan.scheduler, plan.container.image, plan.container.mounts, script)
        look = (missing_sources, missing_script, hidden_from_bundle)
        return self._once(key, lambda: tuple(finding for rule in look for finding in rule(plan)))

    def _once(self, key: object, make: Callable[[], T]) -> T:
        if key not in self._kept:
            self._kept[key] = make()
        made: T = self._kept[key]
        return made


def _key(model: Model | None) -> bytes:
    """A model has a mapping in it, so it cannot be a key itself."""
    return msgspec.json.encode(model)


@dataclass
class _Work:
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


def resolve(
    loaded: LoadedSpec,
    cluster: LoadedCluster,
    *,
    level: str | None = None,
    allow: Sequence[str] = (),
    fetch: bool = False,
    env: Mapping[str, str] | None = None,
    lookups: Lookups | None = None,
) -> Resolved:
    """The Plan of a spec on a cluster, with every finding about it.

    `level` overrides `coverage.level`; rules named in `allow` become warnings; `fetch` clones
    repositories that are named by URL alone. Raises: JobspecError when git cannot be asked.
    """
    from jobspec.spec.load import interpolate_cluster

    environ = os.environ if env is None else env
    lookups = lookups or Lookups()
    profile = lookups.profile(cluster.profile, environ)
    cluster = replace(cluster, profile=profile)
    try:
        loaded = interpolate_cluster(loaded, profile)
    except JobspecError as problem:
        return Resolved(None, tuple(problem.findings), loaded.spec, loaded, cluster)
    base = loaded.path.parent.absolute()
    given = "level" in loaded.data.get("coverage", {})
    known = [*cluster.findings, *loaded.findings]
    work = _Work(loaded.spec, profile, base, environ, lookups, given, tuple(allow), known)
    if cluster.origin == "--cluster-file" or profile.name != (loaded.spec.cluster or DEFAULT_CLUSTER):
        work.default("cluster", "cluster", str(cluster.path))
    found = _plan(work, level, fetch)
    findings = work.findings
    if found.plan is not None:
        findings += check(found.plan, loaded.spec, profile)
        findings += [*check_secrets(found.plan.secrets, environ), *lookups.on_disk(found.plan)]
    placed = allow_rules((_placed(finding, loaded, level) for finding in dict.fromkeys(findings)), allow)
    return Resolved(
        found.plan,
        placed,
        loaded.spec,
        loaded,
        cluster,
        found.level,
        found.repos,
        work.chosen,
        found.training,
    )


def absolute_profile(profile: ClusterProfile, env: Mapping[str, str]) -> ClusterProfile:
    """The profile with `~` and `${user}` expanded and its folders absolute, `./runs` below the current one.

    So `${cluster:runs}` means the same folder wherever the spec lies.
    """

    def folder(value: str | None) -> str | None:
        return None if value is None else os.path.abspath(_home(value, env))  # noqa: PTH100 - text in, text out

    paths = profile.paths
    return msgspec.structs.replace(
        profile,
        paths=msgspec.structs.replace(
            paths,
            runs=folder(paths.runs),
            hf_home=folder(paths.hf_home),
            scratch=folder(paths.scratch),
            node_local=folder(paths.node_local),
        ),
    )


def _home(value: str, env: Mapping[str, str]) -> str:
    user = env.get("USER") or getpass.getuser()
    return os.path.expanduser(value.replace("${user}", user))  # noqa: PTH111 - may stay relative


@dataclass(frozen=True)
class _Found:
    plan: Plan | None
    level: Level | None = None
    repos: tuple[RepoSource, ...] = ()
    gpus: int = 0
    training: Training | None = None


def _plan(work: _Work, wanted_level: str | None, fetch: bool) -> _Found:
    framework = _framework(work)
    level = _level(work, framework, wanted_level) if framework else None
    gpus = _gpus_per_node(work)
    repos, findings = work.lookups.repos(work.spec, work.base, work.profile.paths.runs, fetch)
    work.findings += findings
    if framework is None or level is None:
        return _Found(None, level, repos, gpus)
    context = Context(
        work.spec, work.profile, level, gpus, {repo.plan.name: repo.plan.path for repo in repos}
    )
    problems = [*_is_supported(work.spec, framework), *framework.validate(context)]
    work.findings += problems
    if any(problem.is_error for problem in allow_rules(problems, work.allow)):
        return _Found(None, level, repos, gpus)
    try:
        chosen = framework.plan(context)
    except JobspecError as problem:  # an allowed error that nothing can be planned around
        work.findings += problem.findings
        return _Found(None, level, repos, gpus)
    training = _training(work, chosen)
    plan = _assemble(work, chosen, level, gpus, repos)
    return _Found(plan, level, repos, gpus, training)


def _training(work: _Work, chosen: FrameworkPlan) -> Training | None:
    """What Megatron is told, with the model and the site around it; its findings go to the others."""
    if chosen.shape is None:
        return None
    from jobspec.checks.megatron import Training, check_training  # not loaded for other frameworks

    arch, findings = work.lookups.model(work.spec, work.base, _hf_home(work), chosen.shape.model)
    node = work.profile.node
    training = Training(
        chosen.shape,
        arch,
        parse_bytes(node.gpu_memory) if node.gpu_memory else 0,
        parse_bytes(node.memory) if node.memory else 0,
    )
    work.findings += [*findings, *check_training(training)]
    return training


def _is_supported(spec: JobSpec, framework: Framework) -> Iterator[Finding]:
    """Adapters say by attributes what not all of them have: their `modes`, and `has_pipelines`."""
    if spec.pipelines and not getattr(framework, "has_pipelines", False):
        yield error(
            "spec.pipelines",
            f"`{framework.name}` runs one training, and the spec names pipelines",
            "several trainings on the same GPUs need a scheduler between them",
            "use `framework: rlix`, or a spec for each of them",
            path="pipelines",
        )
    modes: tuple[str, ...] = getattr(framework, "modes", ("ray", "srun"))
    if spec.launch.mode not in modes:
        yield error(
            "launch.upstream-unsupported" if spec.launch.mode == "upstream" else "launch.mode",
            f"`{framework.name}` has no mode `{spec.launch.mode}`",
            fix=f"use {one_of(modes)}",
            path="launch.mode",
        )


def _framework(work: _Work) -> Framework | None:
    from jobspec import frameworks

    try:
        return frameworks.get(work.spec.framework)
    except JobspecError as problem:
        work.findings += [replace(finding, path=finding.path or "framework") for finding in problem.findings]
        return None


def _level(work: _Work, framework: Framework, wanted: str | None) -> Level | None:
    """The level asked for; without any, the framework's first, since not every framework calls it `smoke`."""
    from jobspec import frameworks

    asked = wanted if wanted is not None else work.spec.coverage.level
    if wanted is None and not work.level_given:
        work.default("coverage.level", "framework", framework.name)
        return min(framework.levels, key=lambda level: level.number)
    if wanted is not None:
        work.default("coverage.level", "set", f"--level {wanted}")
    try:
        return frameworks.find_level(framework, asked)
    except JobspecError as problem:
        work.findings += problem.findings
        return None


def _gpus_per_node(work: _Work) -> int:
    asked = work.spec.resources.gpus_per_node
    if asked is not None:
        return asked
    work.default("resources.gpus_per_node", "cluster", work.profile.name)
    return 0 if work.profile.scheduler == "local" else work.profile.node.gpus


def _assemble(
    work: _Work, chosen: FrameworkPlan, level: Level, gpus: int, repos: tuple[RepoSource, ...]
) -> Plan:
    spec, profile = work.spec, work.profile
    hf_home = _hf_home(work)
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
        from jobspec.metrics.require import parse_condition

        yield from (parse_condition(text) for text in spec.metrics.abort_when)


def _folder(work: _Work, value: str) -> str:
    """An absolute path; a relative one counts from the spec's folder."""
    return os.path.normpath(work.base / _home(value, work.env))


def _hf_home(work: _Work) -> str:
    if work.spec.hf_cache.home:
        return _folder(work, work.spec.hf_cache.home)
    if work.profile.paths.hf_home:
        work.default("hf_cache.home", "cluster", work.profile.name)
        return work.profile.paths.hf_home
    if work.profile.scheduler != "local":
        return ""
    work.default("hf_cache.home", "env" if work.env.get("HF_HOME") else "default", "HF_HOME")
    return os.path.abspath(_home(work.env.get("HF_HOME") or "~/.cache/huggingface", work.env))  # noqa: PTH100


def _container(work: _Work, env: Mapping[str, str]) -> ContainerPlan:
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


def _image(work: _Work, image: str) -> str:
    """An absolute path for an image that is a file or a folder; a registry's name stays as it is.

    Pyxis takes `x.sqsh` without a slash for a registry image (pyxis#127): a file's path is always absolute.
    """
    is_path = image.startswith(("/", "./", "../", "~")) or image.endswith(
        (".sqsh", ".sqfs", ".squashfs", ".sif")
    )
    cached = Path(work.profile.container.image_cache or "/nonexistent") / image
    if is_path and not image.startswith(("/", ".", "~")) and cached.is_file():
        return str(cached)
    return _folder(work, image) if is_path or (image and (work.base / image).is_dir()) else image


def _helpers(work: _Work, repos: Sequence[RepoSource]) -> HelpersPlan | None:
    """From a checkout or an installed package; the loader has seen that it is exactly one of them."""
    wanted = work.spec.mcore_helpers
    if wanted is None:
        return None
    if wanted.package is not None:
        return HelpersPlan(package=wanted.package)
    folder = next(repo.plan.path for repo in repos if repo.plan.name == wanted.repo)
    return HelpersPlan(source=os.path.normpath(Path(folder) / wanted.subdir))


def _ray(work: _Work, gpus: int) -> RayPlan:
    ports = work.profile.network.ray_ports
    return RayPlan(
        port=ports.head,
        port_min=ports.worker_min,
        port_max=ports.worker_max,
        num_cpus=work.spec.resources.cpus_per_node or work.profile.node.cpus,
        num_gpus=gpus,
        join_timeout_s=float(work.spec.launch.join_timeout),
    )


def _slurm(work: _Work) -> SlurmPlan:
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


def _placed(finding: Finding, loaded: LoadedSpec, level: str | None) -> Finding:
    """The finding at what gave the key that it names: `--level`, a `--set`, or file, line and column."""
    if finding.file or not finding.path:
        return finding
    if finding.path == "coverage.level" and level is not None:
        return finding.at(f"--level {level}")
    if setting := loaded.setting_of(finding.path):
        return finding.at(setting)
    line, column = loaded.positions.at(finding.path)
    return finding.at(str(loaded.path), line, column)
