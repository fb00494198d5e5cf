"""Spec + site profile + framework -> Plan.

Reads the states of checkouts and the names in a Hugging Face cache; writes nothing, submits nothing.
Problems of the user's input become findings. The Plan is missing only where an error leaves nothing
sensible to plan; the rules over a finished plan live in `jobspec.checks`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from jobspec.checks import check, check_secrets
from jobspec.finding import Finding, JobspecError, error
from jobspec.finding import allow as allow_rules
from jobspec.frameworks.base import Context, FoundModel, Framework, FrameworkPlan, Level
from jobspec.plan import (
    Plan,
)
from jobspec.planning.assemble import Work, assemble, find_hf_home
from jobspec.planning.container import settle_container
from jobspec.planning.lookups import Lookups
from jobspec.planning.model import trained_architecture
from jobspec.planning.on_disk import missing_sources
from jobspec.planning.repos import RepoSource, unreadable
from jobspec.spec.find_site import DEFAULT_CLUSTER
from jobspec.spec.paths import Origin
from jobspec.units import parse_bytes
from jobspec.words import one_of

if TYPE_CHECKING:
    from jobspec.checks.megatron import Training
    from jobspec.spec.find_site import LoadedCluster
    from jobspec.spec.job import JobSpec
    from jobspec.spec.load import LoadedSpec


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

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings, with an error among them where there is no plan.

        Nothing is wrong, as far as is seen, where the checkout that says what to run is named by URL alone.
        """
        if self.plan is not None or any(finding.is_error for finding in self.findings):
            return self.findings
        what, fix = "nothing can be planned before the checkouts are here", "`jobspec render` clones them"
        return (*self.findings, error("repo.not-here", what, fix=fix, path="repos"))

    @property
    def ready_plan(self) -> Plan:
        """The plan of a spec without errors. Raises: JobspecError when there is none."""
        if self.plan is None:
            raise JobspecError(*self.problems)
        return self.plan

    @property
    def remote(self) -> bool:
        """Whether the run's cluster has file systems of its own, behind SSH."""
        return self.ready_plan.scheduler == "slurm" and self.cluster.profile.access.login != "here"

    @cached_property
    def origins(self) -> Mapping[str, Origin]:
        """Dotted path -> where its value came from, what resolution chose included."""
        return {**self.loaded.origins, **self.chosen}


def resolve(
    loaded: LoadedSpec,
    cluster: LoadedCluster,
    *,
    allow: Sequence[str] = (),
    fetch: bool = False,
    env: Mapping[str, str] | None = None,
    lookups: Lookups | None = None,
) -> Resolved:
    """The Plan of a spec on a cluster, with every finding about it.

    Rules named in `allow` become warnings; `fetch` clones repositories that are named by URL alone.
    Raises: JobspecError when git cannot be asked.
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
    work = Work(loaded.spec, profile, base, environ, lookups, given, tuple(allow), known)
    if cluster.origin == "--cluster-file" or profile.name != (loaded.spec.cluster or DEFAULT_CLUSTER):
        work.default("cluster", "cluster", str(cluster.path))
    found = _plan(work, fetch)
    findings = work.findings
    if found.plan is not None:
        findings += check(found.plan, loaded.spec, profile)
        findings += [*check_secrets(found.plan.secrets, environ), *lookups.on_disk(found.plan)]
    else:
        stage, problems = lookups.inputs(loaded.spec, base, find_hf_home(work), profile.scheduler)
        findings += [*problems, *missing_sources(stage, profile.scheduler)]
    told = [_placed(finding, loaded) for finding in _causes(findings, allow)]
    placed = allow_rules(told, allow, usable=found.plan is not None)
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


@dataclass(frozen=True)
class _Found:
    plan: Plan | None
    level: Level | None = None
    repos: tuple[RepoSource, ...] = ()
    gpus: int = 0
    training: Training | None = None


def _plan(work: Work, fetch: bool) -> _Found:
    framework = _framework(work)
    level = _level(work, framework) if framework else None
    gpus = _gpus_per_node(work)
    repos, findings = work.lookups.repos(work.spec, work.base, work.profile.paths.runs, fetch)
    work.findings += findings
    if framework is None or level is None:
        return _Found(None, level, repos, gpus)
    paths = {repo.plan.name: repo.plan.path for repo in repos}
    hf_home = find_hf_home(work)
    context = Context(
        work.spec,
        work.profile,
        level,
        gpus,
        paths,
        work.base,
        hf_home,
        work.lookups.model(work.spec, work.base, hf_home, work.profile.scheduler),
        settle_container(work.spec, work.profile, work.base, work.env),
    )
    if work.spec.container.python is None:
        this = context.container.python == sys.executable
        work.default("container.python", "default", "this interpreter" if this else "")
    chosen = _ask(work, framework, context)
    if chosen is None:
        return _Found(None, level, repos, gpus)
    training = _training(work, chosen, context.model)
    plan = assemble(work, chosen, context, repos)
    return _Found(plan, level, repos, gpus, training)


def _ask(work: Work, framework: Framework, context: Context) -> FrameworkPlan | None:
    """The adapter's answer; None where its findings, or what it may not read, leave none."""
    try:
        problems = [*_is_supported(work.spec, framework), *framework.validate(context)]
        work.findings += problems
        if any(problem.is_error for problem in allow_rules(problems, work.allow)):
            return None
        return framework.plan(context)
    except JobspecError as problem:  # an allowed error that nothing can be planned around
        work.findings += problem.findings
    except OSError as problem:  # adapters look into checkouts, and into files that these name
        if not any(item.rule in ("repo.missing", "repo.unreadable") for item in work.findings):
            why = (problem.strerror or str(problem)).lower()
            work.findings.append(unreadable(str(problem.filename), why))
    return None


def _training(work: Work, chosen: FrameworkPlan, model: FoundModel) -> Training | None:
    """What Megatron is told, with the model and the site around it; its findings go to the others."""
    if chosen.shape is None:
        return None
    from jobspec.checks.megatron import Training, check_training  # not loaded for other frameworks

    arch, findings = trained_architecture(model, chosen.shape.model)
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


def _framework(work: Work) -> Framework | None:
    from jobspec import frameworks

    try:
        return frameworks.get(work.spec.framework)
    except JobspecError as problem:
        work.findings += [replace(finding, path=finding.path or "framework") for finding in problem.findings]
        return None


def _level(work: Work, framework: Framework) -> Level | None:
    """The level that the spec gives, else the framework's first: not every framework calls it `smoke`."""
    from jobspec import frameworks

    if not work.level_given:
        work.default("coverage.level", "framework", framework.name)
        return min(framework.levels, key=lambda level: level.number)
    try:
        return frameworks.find_level(framework, work.spec.coverage.level)
    except JobspecError as problem:
        work.findings += problem.findings
        return None


def _gpus_per_node(work: Work) -> int:
    asked = work.spec.resources.gpus_per_node
    if asked is not None:
        return asked
    work.default("resources.gpus_per_node", "cluster", work.profile.name)
    return 0 if work.profile.scheduler == "local" else work.profile.node.gpus


def _causes(findings: Sequence[Finding], allow: Sequence[str]) -> list[Finding]:
    """Each finding once, without what only follows from another one.

    A checkout that is not here holds no framework, and the sizes of a model that is not here are not known.
    """
    told = dict.fromkeys(findings)
    absent = any(item.rule == "repo.not-fetched" for item in told) or any(
        item.rule in ("repo.missing", "repo.unreadable") and item.is_error
        for item in allow_rules(told, allow)
    )
    model = next((item for item in told if (item.rule, item.path) == ("stage.missing", "model")), None)
    follow = [
        item
        for item in told
        if (absent and item.path == "repos" and item.rule.endswith(".checkout"))
        or (model is not None and (item.rule, item.path) == ("megatron.model-unknown", "model"))
    ]
    if model is not None and any(item.rule == "megatron.model-unknown" for item in follow):
        unchecked = replace(model, why=f"{model.why}; its layers, heads, experts and memory are not checked")
        return [unchecked if item is model else item for item in told if item not in follow]
    return [item for item in told if item not in follow]


def _placed(finding: Finding, loaded: LoadedSpec) -> Finding:
    """The finding at what gave the key that it names: an option, or file, line and column."""
    if finding.file or not finding.path:
        return finding
    if setting := loaded.setting_of(finding.path):
        return finding.at(setting)
    line, column = loaded.positions.at(finding.path)
    return finding.at(str(loaded.path), line, column)
