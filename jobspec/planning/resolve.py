"""Spec + site profile + framework -> Plan.

Reads the states of checkouts and the names in a Hugging Face cache; writes nothing, submits nothing.
Problems of the user's input become findings. The Plan is missing only where an error leaves nothing to plan.
The rules over a finished plan are in `jobspec.checks`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import structs

from jobspec.checks import check, check_secrets
from jobspec.finding import Finding, JobspecError, error, warning
from jobspec.finding import allow as allow_rules
from jobspec.frameworks.base import Context, FoundModel, Framework, FrameworkPlan, Level
from jobspec.plan import Plan, most_gpus
from jobspec.planning.assemble import Resolution, assemble, find_hf_home
from jobspec.planning.container import settle_container
from jobspec.planning.elsewhere import moved
from jobspec.planning.interpreter import missing_modules
from jobspec.planning.known_good import known_good
from jobspec.planning.lookups import Lookups, asked_of
from jobspec.planning.model import trained_architecture
from jobspec.planning.not_applicable import not_applicable
from jobspec.planning.on_disk import missing_sources
from jobspec.planning.placed import causes, placed
from jobspec.planning.repos import RepoSource, unreadable
from jobspec.planning.services import check_service_files, own_containers, planned_services
from jobspec.planning.settled_site import settle_site
from jobspec.planning.supported import lacking, unplanned_checks
from jobspec.runs.store import state_folder
from jobspec.spec.find_site import DEFAULT_CLUSTER
from jobspec.spec.paths import Origin
from jobspec.units import parse_bytes

if TYPE_CHECKING:
    from jobspec.checks.megatron import Training
    from jobspec.runs.avoided import Avoided
    from jobspec.spec.find_site import LoadedCluster
    from jobspec.spec.job import JobSpec
    from jobspec.spec.load import LoadedSpec


@dataclass(frozen=True)
class Resolved:
    """A spec with everything around it looked up. `plan` is None when errors left nothing to plan.

    `loaded` and `spec` are interpolated; `repos` has the git states of the plan, Megatron runs a `training`.
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
    lookups: Lookups = field(default_factory=Lookups, repr=False, compare=False)
    context: Context | None = field(default=None, repr=False, compare=False)
    avoided: tuple[Avoided, ...] = ()

    @property
    def hooks(self) -> tuple[str, ...]:
        return self.cluster.profile.hooks.setup

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings. Without a plan at least one of them is an error.

        A checkout named by URL alone is no error of the spec, but without it nothing can be planned.
        """
        if self.plan is not None or any(finding.is_error for finding in self.findings):
            return self.findings
        what, fix = (
            "nothing can be planned before the checkouts are here",
            "run `jobspec render`: it clones them",
        )
        return (*self.findings, error("repo.not-here", what, fix=fix, path="repos"))

    @property
    def ready_plan(self) -> Plan:
        """The plan of a spec without errors. Raises: JobspecError when there is none."""
        if self.plan is None:
            raise JobspecError(*self.problems)
        return self.plan

    @property
    def remote(self) -> bool:
        """Whether the cluster is behind SSH and has file systems of its own."""
        return self.ready_plan.scheduler == "slurm" and self.cluster.profile.access.login != "here"

    @cached_property
    def origins(self) -> Mapping[str, Origin]:
        """Dotted path -> where its value came from. Defaults that resolution chose are included."""
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
    level_given = "level" in loaded.data.get("coverage", {})
    known = [*cluster.findings, *loaded.findings]
    resolution = Resolution(loaded.spec, profile, base, environ, lookups, level_given, tuple(allow), known)
    resolution.given = loaded.data.get("resources") or {}
    resolution.mode_given = "mode" in (loaded.data.get("launch") or {})
    resolution.elsewhere, resolution.fetch = cluster.elsewhere, fetch
    if cluster.origin == "--cluster-file" or profile.name != (loaded.spec.cluster or DEFAULT_CLUSTER):
        resolution.default("cluster", "cluster", str(cluster.path))
    settle_site(resolution)
    outcome = _plan(resolution, fetch)
    findings, profile = resolution.findings, resolution.profile
    if outcome.plan is not None:
        findings += check(outcome.plan, resolution.spec, profile, resolution.groups)
        findings += [*check_secrets(outcome.plan.secrets, environ), *lookups.on_disk(outcome.plan)]
        findings += missing_modules(outcome.plan, outcome.modules)
    else:
        stage, problems = lookups.inputs(loaded.spec, base, find_hf_home(resolution), profile.scheduler)
        findings += [*problems, *missing_sources(stage, profile.scheduler, lookups.far)]
        if outcome.sketch is not None:
            about = check(outcome.sketch, resolution.spec, profile, resolution.groups)
            unknown = OF_THE_FRAMEWORK | (OF_A_RECIPE if resolution.spec.train.recipe else set())
            findings += [item for item in about if item.rule not in unknown]
            findings += check_secrets(resolution.spec.secrets, environ)
    told = [placed(finding, loaded) for finding in causes(findings, allow)]
    if any(repo.there for repo in outcome.repos):
        plan, repos, moved_findings = moved(outcome.plan, outcome.repos, told)
        outcome, told = replace(outcome, plan=plan, repos=repos), [*moved_findings]
    return Resolved(
        outcome.plan,
        allow_rules(told, allow, usable=outcome.plan is not None),
        resolution.spec,
        loaded,
        cluster,
        outcome.level,
        outcome.repos,
        resolution.origins,
        outcome.training,
        lookups,
        outcome.context,
        resolution.avoided,
    )


# Rules about what only the framework's own plan has.
OF_THE_FRAMEWORK = frozenset({"launch.no-command", "launch.upstream-unsupported"})
OF_A_RECIPE = frozenset({"resources.no-time", "resources.site-default"})


@dataclass(frozen=True)
class _Outcome:
    """`sketch` is a plan without the framework's part, made where errors leave no real one.

    It is there for the rules alone: an error of the framework must not hide those of the site.
    """

    plan: Plan | None
    level: Level | None = None
    repos: tuple[RepoSource, ...] = ()
    training: Training | None = None
    modules: tuple[str, ...] = ()
    sketch: Plan | None = None
    context: Context | None = None


def _plan(resolution: Resolution, fetch: bool) -> _Outcome:
    framework = _framework(resolution)
    level = _level(resolution, framework) if framework else None
    repos, findings = _repos(resolution, fetch)
    resolution.findings += findings
    paths = {repo.plan.name: repo.plan.path for repo in repos}
    if framework is not None and resolution.spec.train.recipe is not None:
        _size_by_recipe(resolution, framework, paths)
    if framework is not None and not resolution.mode_given:
        _choose_mode(resolution, framework, paths)
    resolution.gpus_per_node = _gpus_per_node(resolution)
    resolution.services = planned_services(resolution.spec, resolution.base, paths)
    if framework is None or level is None:
        return _Outcome(None, level, repos)
    hf_home = find_hf_home(resolution)
    far = resolution.lookups.far
    container = settle_container(
        resolution.spec.container, resolution.profile, resolution.base, resolution.env, far
    )
    if container.cached:
        resolution.default("container.image", "cluster", f"imported from {container.cached.reference}")
    container, about_image = resolution.lookups.image(container, resolution.profile, fetch)
    resolution.findings += about_image
    resolution.services = tuple(own_containers(resolution, fetch))
    context = Context(
        _spec_for(resolution, framework),
        resolution.profile,
        level,
        _driver_gpus(resolution)[0],
        paths,
        resolution.base,
        hf_home,
        resolution.lookups.model(resolution.spec, resolution.base, hf_home, resolution.profile.scheduler),
        container,
    )
    resolution.findings += check_service_files(context)
    if resolution.spec.container.python is None:
        this = context.container.python == sys.executable
        resolution.default("container.python", "default", "this interpreter" if this else "")
    framework_plan = _ask(resolution, framework, context)
    if framework_plan is None:
        sketch = assemble(resolution, FrameworkPlan(()), context, repos)
        return _Outcome(None, level, repos, sketch=sketch)
    training = _training(resolution, framework_plan, context.model)
    plan = assemble(resolution, framework_plan, context, repos)
    baseline, problems = known_good(resolution)
    resolution.findings += problems
    blocked = [*not_applicable(resolution, framework, level)]
    resolution.findings += [item for item in blocked if isinstance(item, Finding)]
    left_out = tuple(item for item in blocked if not isinstance(item, Finding))
    plan = replace(plan, expect=replace(plan.expect, baseline=baseline, not_applicable=left_out))
    modules = getattr(framework, "modules", ())
    return _Outcome(plan, level, repos, training, modules, context=context)


def _repos(resolution: Resolution, fetch: bool) -> tuple[tuple[RepoSource, ...], list[Finding]]:
    """The checkouts where the run finds them: on this machine's disks, or on the cluster's."""
    spec, profile, base = resolution.spec, resolution.profile, resolution.base
    if resolution.elsewhere is None:
        return resolution.lookups.repos(spec, base, profile.paths.runs, fetch)
    hf_home, state = find_hf_home(resolution), state_folder(resolution.env) / "remote" / profile.name
    asked = asked_of(spec, profile, base, hf_home, resolution.env)
    if not spec.repos and not asked:
        return (), []
    return resolution.lookups.elsewhere(spec, base, profile, resolution.elsewhere, fetch, state, asked)


def _size_by_recipe(resolution: Resolution, framework: Framework, paths: Mapping[str, str]) -> None:
    """Take over what the spec's recipe asks of the scheduler, for keys that the spec leaves out."""
    sizes = getattr(framework, "recipe_resources", None)
    if sizes is None:
        what = f"`{framework.name}` has no recipes by name"
        resolution.findings.append(error("spec.recipe", what, fix="remove it", path="train.recipe"))
        return
    asked = {
        key: value for key, value in sizes(resolution.spec, paths).items() if key not in resolution.given
    }
    if resolution.profile.scheduler == "local":
        asked.pop("time", None)  # limits of a queue; nothing else here has one
    resources = structs.replace(resolution.spec.resources, **asked)
    resolution.spec = structs.replace(resolution.spec, resources=resources)
    for key in asked:
        resolution.default(f"resources.{key}", "framework", f"recipe {resolution.spec.train.recipe}")


def _choose_mode(resolution: Resolution, framework: Framework, paths: Mapping[str, str]) -> None:
    """Take over the framework's own `launch.mode`, where it has another default than `ray`."""
    choose = getattr(framework, "default_mode", None)
    if choose is None:
        return
    mode = choose(resolution.spec, resolution.base, paths)
    launch = structs.replace(resolution.spec.launch, mode=mode)
    resolution.spec = structs.replace(resolution.spec, launch=launch)
    resolution.default("launch.mode", "framework", framework.name)
    nodes = resolution.spec.resources.nodes
    if mode == "srun" and nodes > 1:
        resolution.findings.append(
            warning(
                "launch.mode-chosen",
                f"the command runs on each of {nodes} nodes, without Ray",
                why="`launch.mode` is not given, and the command was not seen to use Ray",
                fix="write `launch: {mode: srun}`, or `{mode: ray}` to run it once beside a Ray cluster",
                path="launch.mode",
            )
        )


def _ask(resolution: Resolution, framework: Framework, context: Context) -> FrameworkPlan | None:
    """The adapter's plan; None when a finding is an error or a file cannot be read."""
    try:
        problems = [*lacking(resolution.spec, framework, _groups_with_gpus(resolution))]
        problems += framework.validate(context)
        resolution.findings += problems
        if any(problem.is_error for problem in allow_rules(problems, resolution.allow)):
            return None
        planned = framework.plan(context)
        resolution.findings += unplanned_checks(resolution.spec, planned)
        return planned
    except JobspecError as problem:  # an allowed error that leaves nothing to plan
        resolution.findings += problem.findings
    except OSError as problem:  # adapters read checkouts and files that these name
        if not any(item.rule in ("repo.missing", "repo.unreadable") for item in resolution.findings):
            why = (problem.strerror or str(problem)).lower()
            resolution.findings.append(unreadable(str(problem.filename), why))
    return None


def _training(resolution: Resolution, framework_plan: FrameworkPlan, model: FoundModel) -> Training | None:
    """The sizes of a Megatron run, its model and its site. Their findings go to `resolution.findings`."""
    if framework_plan.shape is None:
        return None
    from jobspec.checks.megatron import Training, check_training  # not loaded for other frameworks

    arch, findings = trained_architecture(model, framework_plan.shape.model)
    node = resolution.profile.node
    training = Training(
        framework_plan.shape,
        arch,
        parse_bytes(node.gpu_memory) if node.gpu_memory else 0,
        parse_bytes(node.memory) if node.memory else 0,
    )
    resolution.findings += [*findings, *check_training(training)]
    return training


def _framework(resolution: Resolution) -> Framework | None:
    from jobspec import frameworks

    try:
        return frameworks.get(resolution.spec.framework)
    except JobspecError as problem:
        resolution.findings += [
            replace(finding, path=finding.path or "framework") for finding in problem.findings
        ]
        return None


def _level(resolution: Resolution, framework: Framework) -> Level | None:
    """The level of the spec, else the framework's first, which may have another name than `smoke`."""
    from jobspec import frameworks

    if not resolution.level_given:
        resolution.default("coverage.level", "framework", framework.name)
        return min(framework.levels, key=lambda level: level.number)
    try:
        return frameworks.find_level(framework, resolution.spec.coverage.level)
    except JobspecError as problem:
        resolution.findings += problem.findings
        return None


def _driver_gpus(resolution: Resolution) -> list[int]:
    """GPUs of each node for Ray and the commands, by group; of a run of equal nodes as of one group."""
    sizes = [(site.group.nodes, site.gpus) for site in resolution.groups]
    left, first = [], 0
    for nodes, gpus in sizes or [(resolution.spec.resources.nodes, resolution.gpus_per_node)]:
        left.append(max(0, gpus - most_gpus(resolution.services, range(first, first + nodes))))
        first += nodes
    return left


def _groups_with_gpus(resolution: Resolution) -> list[str]:
    """The groups behind the first in which Ray has GPUs."""
    behind = zip(resolution.groups[1:], _driver_gpus(resolution)[1:], strict=True)
    return [site.group.name for site, gpus in behind if gpus]


def _spec_for(resolution: Resolution, framework: Framework) -> JobSpec:
    """The spec as the adapter has it: with the nodes on which its workers are."""
    spec = resolution.spec
    if not spec.groups or getattr(framework, "has_groups", "") != "first":
        return spec
    return structs.replace(spec, resources=structs.replace(spec.resources, nodes=spec.groups[0].nodes))


def _gpus_per_node(resolution: Resolution) -> int:
    if resolution.groups:
        return max(site.gpus for site in resolution.groups)
    gpus = resolution.spec.resources.gpus_per_node
    if gpus is not None:
        return gpus
    resolution.default("resources.gpus_per_node", "cluster", resolution.profile.name)
    return 0 if resolution.profile.scheduler == "local" else resolution.profile.node.gpus
