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
class Level:
    """A coverage level. `proves` is what a pass means, `not_proved` what it never means.

    `needs` are resources and inputs. `notes` explain the variants to people, as far as they need it.
    """

    name: str
    number: int
    proves: str
    not_proved: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    needs: str = ""
    notes: tuple[VariantNote, ...] = ()

    def stated_in(self, expect: ExpectPlan) -> ExpectPlan:
        """The expectations with all that a report says about this level: it may outlive the adapter."""
        return replace(
            expect,
            level=self.name,
            number=self.number,
            proves=self.proves,
            limitations=tuple(dict.fromkeys((*self.not_proved, *expect.limitations))),
        )


@dataclass(frozen=True)
class FoundModel:
    """The spec's model as planning has found it; empty where the spec names none.

    `stage` is its place on shared storage, None for an id where no cache is known; `folder` has its files;
    `absent`: they are not there, and a finding says so. `has_config`: the sizes are the model's own.
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
    """What an adapter may look at. `level` is already looked up; repo paths are absolute.

    `base` is the folder of the spec, where its relative paths begin; `hf_home` is empty where none is known.
    `model` and `container` are settled: no adapter looks for the spec's own again.
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
        """Folders of repositories that are not here: mistyped, or not cloned yet.

        A finding of its own says so, and no rule tells what such a folder lacks.
        """
        return tuple(path for path in self.repo_paths.values() if not is_folder(path))


@dataclass(frozen=True)
class FrameworkPlan:
    """An adapter's answer; `resolve` merges it into the Plan.

    `ray_mode`: `external` (jobspec brings Ray up), `self` (the command does), `none`.
    `upstream`: the framework's own batch script, for `launch.mode: upstream`; only then is it looked at.
    `env` is exported before Ray starts on every node; a command's own `env` goes to the driver alone.
    `stage` adds to what the spec's model and data already ask for. `checks` are the tests of
    `coverage.checks`: they run in their own phase, and `commands` only when all of them passed.
    `abort_when` are conditions on metrics that end a run which can prove nothing any more.
    `made` are folders outside of the run's own that its programs make, to be removed at its end.
    `shape` is what Megatron is told, for the rules and the memory estimate of `jobspec.checks.megatron`.
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


class Framework(Protocol):
    """The adapter interface (contract test: tests/frameworks/test_contract.py).

    Optional: `guide: tuple[str, ...]`, the deliverables of the framework's validation guide in its order;
    reports then start with the guides' short form. `log_metrics(evidence) -> Table`, metrics that only logs
    hold, for the table of a sweep. `has_pipelines = True`: it runs what the spec names in `pipelines`; its
    plan then has one of `ExpectPlan.parts` for each, and their metrics lie below `@NAME` of the metrics.
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

        Without `variants` the level's own minimum; without `steps` as many as were logged. Only called
        for variants that the level has.
        """

    def judge(self, evidence: Evidence) -> Iterable[Deliverable]:
        """The framework's own deliverables from evidence files, each with what supports it."""
