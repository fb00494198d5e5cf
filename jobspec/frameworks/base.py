"""What an RL framework's adapter provides. The core never asks which framework it has.

One module per framework, registered in `jobspec.frameworks`. Adapters are pure: they read the spec,
the site profile and (through `Checkout` probes handed in) source trees, and return plain data.
They never import each other, a launcher, or the framework itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from jobspec.disk import is_folder
from jobspec.finding import Finding
from jobspec.megatron.shape import TrainShape
from jobspec.plan import AbortPlan, CommandPlan, ContainerPlan, ExpectPlan, MadePlan, StagePlan, UpstreamPlan

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence
    from jobspec.megatron.architecture import Architecture
    from jobspec.spec.job import JobSpec
    from jobspec.spec.site import ClusterProfile
    from jobspec.verdict import Deliverable


@dataclass(frozen=True)
class VariantNote:
    """A variant in words: what it runs, what it needs beyond its level, and what must show that it ran."""

    name: str
    about: str
    needs: str = ""
    proof: str = ""


@dataclass(frozen=True)
class RecipeNote:
    """A maintained recipe as its checkout has it. `problem` says why jobspec does not run it; empty for none.

    `file` is its place below the checkout, `minutes` are 0 where nothing says them, and `sizes` are its
    degrees of model parallelism above 1.
    """

    name: str
    file: str
    algorithm: str = ""
    model: str = ""
    nodes: int = 1
    gpus: int = 1
    steps: int = 0
    minutes: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""
    shape: TrainShape | None = None


@dataclass(frozen=True)
class Level:
    """A coverage level. `proves` is what a pass means, `not_proved` what it never means.

    `needs` are resources and inputs. `notes` explain variants to people; a variant may have none.
    """

    name: str
    number: int
    proves: str
    not_proved: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    needs: str = ""
    notes: tuple[VariantNote, ...] = ()

    def stated_in(self, expect: ExpectPlan) -> ExpectPlan:
        """The expectations with the level's own texts, since a report may outlive the adapter."""
        return replace(
            expect,
            level=self.name,
            number=self.number,
            proves=self.proves,
            limitations=tuple(dict.fromkeys((*self.not_proved, *expect.limitations))),
        )


@dataclass(frozen=True)
class FoundModel:
    """The spec's model, looked up once by planning; empty where the spec names no model.

    `stage` is the model's place on shared storage, None for an id without a known cache. `folder` holds its
    files. `absent` means that the files are missing, which a finding reports. `has_config` means that the
    sizes come from the model's own config.json.
    """

    stage: StagePlan | None = None
    folder: Path | None = None
    absent: bool = False
    architecture: Architecture | None = None
    has_config: bool = False
    findings: tuple[Finding, ...] = ()
    size_findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Context:
    """What an adapter may look at. `level` is already looked up, and repo paths are absolute.

    `base` is the folder of the spec, where its relative paths begin. `hf_home` is empty where no cache is
    known. `model` and `container` are settled, so no adapter reads them from the spec again.
    """

    spec: JobSpec
    cluster: ClusterProfile
    level: Level
    gpus_per_node: int
    repo_paths: Mapping[str, str] = field(default_factory=dict)
    base: Path = Path()
    hf_home: str = ""
    model: FoundModel = field(default_factory=FoundModel)
    container: ContainerPlan = field(default_factory=ContainerPlan)

    @property
    def absent(self) -> tuple[str, ...]:
        """Folders of repositories that do not exist here: mistyped, or not cloned yet.

        A separate finding reports each folder. Rules about the contents skip it.
        """
        return tuple(path for path in self.repo_paths.values() if not is_folder(path))


@dataclass(frozen=True)
class FrameworkPlan:
    """An adapter's answer; `resolve` merges it into the Plan.

    `ray_mode` says who starts Ray: `external` (jobspec), `self` (the command), `none` (nobody).
    `upstream` is the framework's own batch script; only `launch.mode: upstream` reads it.
    `env` is exported on every node before Ray starts; a command's own `env` reaches the driver alone.
    `stage` adds to the staging of the spec's model and data. `checks` are the tests of `coverage.checks`;
    they run in their own phase, and `commands` run only when all of them passed.
    `abort_when` are conditions on metrics that end a run which can prove nothing any more.
    `made` are folders outside the run's own that its programs make; the end of the run removes them.
    `loads_model` says that training loads the spec's model by transformers, which is then tried first.
    `shape` holds Megatron's sizes, for the rules and the memory estimate of `jobspec.checks.megatron`.
    """

    commands: tuple[CommandPlan, ...]
    checks: tuple[CommandPlan, ...] = ()
    ray_mode: Literal["external", "self", "none"] = "external"
    upstream: UpstreamPlan | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    stage: tuple[StagePlan, ...] = ()
    expect: ExpectPlan = field(default_factory=ExpectPlan)
    collect: tuple[str, ...] = ()
    shape: TrainShape | None = None
    abort_when: tuple[AbortPlan, ...] = ()
    made: tuple[MadePlan, ...] = ()
    loads_model: bool = False


class Framework(Protocol):
    """The adapter interface (contract test: tests/frameworks/test_contract.py).

    Optional attributes:

    - `guide: tuple[str, ...]`: the deliverables of the framework's validation guide, in its order. Reports
      then start with the guides' short form.
    - `log_metrics(evidence) -> Table`: metrics that only logs hold, for the table of a sweep.
    - `signs: tuple[str, ...]`: texts that only this framework's logs and configurations hold, or names of its
      metrics; `jobspec judge` finds the framework by them. `drives: tuple[str, ...]` names frameworks that it
      runs, whose signs its logs hold too.
    - `idle(evidence) -> frozenset[str]`: limitations of its levels that say nothing of a run of others, whose
      files show another kind of training.
    - `recipe_resources(spec, repo_paths) -> Mapping`: what the spec's `train.recipe` asks of the scheduler,
      for keys of `resources` that the spec leaves out. `recipes(root, family) -> Iterator[RecipeNote]`: the
      recipes of a checkout, all or those of a model family. `closest_recipes(root, model)`: those nearest to
      a model.
    - `override_keys(recipe, repo_paths) -> Iterable[str]`: the keys of `train.overrides` that are known here,
      for Tab: those of the checkout's configuration, or of the recipe (of the first pipeline's `config`).
    - `default_mode(spec, base, repo_paths) -> str`: `launch.mode` of a spec that does not give it; `base` is
      the spec's folder. Without it the default is `ray`.
    - `modules: tuple[str, ...]`: what the run's interpreter (`container.python`) imports, for a look at
      validation where the run is on this machine.
    - `has_pipelines = True`: the framework runs the `pipelines` of the spec. The plan then has one of
      `ExpectPlan.parts` for each pipeline, and its metrics lie below `@NAME` of the metrics.
    - `has_groups = "any"`: what the spec starts finds the nodes of its `groups` by itself. `"first"`: workers
      are wherever Ray has GPUs, which only the first group may have; the context's spec has its nodes alone.
    - `for_services: str`: which GPUs the services of other groups may take, for that finding's advice.
    """

    name: str
    summary: str
    levels: tuple[Level, ...]

    def validate(self, context: Context) -> Iterable[Finding]:
        """Findings about the spec that need no cluster; `path` names the spec key."""

    def plan(self, context: Context) -> FrameworkPlan:
        """Commands, environment, Ray mode, staging and expectations. Only called without errors."""

    def expect(self, level: Level, variants: tuple[str, ...] = (), steps: int = 0) -> ExpectPlan:
        """What files of a run that jobspec did not launch must show (`jobspec judge`).

        Without `variants` the level's own minimum applies, without `steps` the number of logged steps.
        Only called with variants of the level.
        """

    def judge(self, evidence: Evidence) -> Iterable[Deliverable]:
        """The framework's own deliverables from evidence files, each with what supports it."""
