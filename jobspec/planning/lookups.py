"""What resolution reads from disks: checkouts, models and their folders, each once for a whole sweep."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from jobspec.planning.repos import (
    RepoSource,
    hidden_from_bundle,
    missing_helpers,
    missing_script,
    missing_sources,
    read_repos,
    stage_plans,
)

if TYPE_CHECKING:
    from jobspec.finding import Finding
    from jobspec.megatron.architecture import Architecture
    from jobspec.plan import Plan, StagePlan
    from jobspec.spec.job import JobSpec, Model
    from jobspec.spec.site import ClusterProfile

T = TypeVar("T")


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
        from jobspec.planning.model import read_architecture

        return self._once(
            ("model", _key(spec.model), base, hf_home, named),
            lambda: read_architecture(spec.model, base, hf_home, named),
        )

    def on_disk(self, plan: Plan) -> tuple[Finding, ...]:
        """What the files named in a plan look like from here."""
        script = (plan.upstream.root, plan.upstream.script) if plan.upstream is not None else ()
        key = (plan.stage, plan.scheduler, plan.container.image, plan.container.mounts, script, plan.helpers)
        look = (missing_script, missing_helpers, hidden_from_bundle)
        return self._once(
            key,
            lambda: (
                *missing_sources(plan.stage, plan.scheduler),
                *(finding for rule in look for finding in rule(plan)),
            ),
        )

    def inputs(self, spec: JobSpec, base: Path, hf_home: str, scheduler: str) -> list[Finding]:
        """What is wrong with a spec's model and data alone, where errors have left no plan."""
        stage, findings = self.stage(spec, base, hf_home)
        return [*findings, *missing_sources(stage, scheduler)]

    def _once(self, key: object, make: Callable[[], T]) -> T:
        if key not in self._kept:
            self._kept[key] = make()
        made: T = self._kept[key]
        return made


def _key(model: Model | None) -> bytes:
    """A model has a mapping in it, so it cannot be a key itself."""
    return msgspec.json.encode(model)


def absolute_profile(profile: ClusterProfile, env: Mapping[str, str]) -> ClusterProfile:
    """The profile with `~` and `${user}` expanded and its folders absolute, `./runs` below the current one.

    So `${cluster:runs}` means the same folder wherever the spec lies.
    """

    def folder(value: str | None) -> str | None:
        return None if value is None else os.path.abspath(home(value, env))  # noqa: PTH100 - text in, text out

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


def home(value: str, env: Mapping[str, str]) -> str:
    user = env.get("USER") or getpass.getuser()
    return os.path.expanduser(value.replace("${user}", user))  # noqa: PTH111 - may stay relative
