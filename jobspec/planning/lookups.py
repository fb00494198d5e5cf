"""What resolution reads from disks: checkouts, models and their folders, each once for a whole sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from jobspec.finding import WARNING, JobspecError, error
from jobspec.planning.container import about_the_cache, image_questions, with_tag_digest
from jobspec.planning.digests import tree_digest
from jobspec.planning.elsewhere import read_elsewhere
from jobspec.planning.far_inputs import FarInput, answered, questions
from jobspec.planning.model import find_data, find_model
from jobspec.planning.on_disk import (
    hidden_from_bundle,
    missing_helpers,
    missing_image,
    missing_script,
    missing_sources,
)
from jobspec.planning.paths import absolute_profile
from jobspec.planning.repos import RepoSource, read_repos
from jobspec.runs.avoided import Avoided, listed

if TYPE_CHECKING:
    from jobspec.finding import Finding
    from jobspec.frameworks.base import FoundModel
    from jobspec.plan import ContainerPlan, Plan, StagePlan
    from jobspec.spec.find_site import Elsewhere
    from jobspec.spec.job import JobSpec, Model
    from jobspec.spec.site import ClusterProfile

T = TypeVar("T")
HUB_DEADLINE_S = 5.0  # of one wait
HUB_TOTAL_S = 30.0


@dataclass
class Lookups:
    """Answers from disks, kept over the points of a sweep: each checkout is read once.

    `asks` lets the server of a repository by URL say which commit its `ref` is now.
    """

    asks: bool = False
    far: dict[str, FarInput] | None = (
        None  # what the login node says of images, models and data; None: no such
    )
    _kept: dict[object, Any] = field(default_factory=dict)

    def profile(self, profile: ClusterProfile, env: Mapping[str, str]) -> ClusterProfile:
        return self._once(("profile", id(profile)), lambda: absolute_profile(profile, env))

    def avoided(self, env: Mapping[str, str]) -> tuple[tuple[Avoided, ...], list[Finding]]:
        """The user's list of nodes to avoid, as it is now."""
        return self._once("avoided", lambda: listed(env))

    def repos(
        self, spec: JobSpec, base: Path, runs: str, fetch: bool
    ) -> tuple[tuple[RepoSource, ...], list[Finding]]:
        return self._once((spec.repos, base), lambda: read_repos(spec, base, runs, fetch, self.asks))

    def elsewhere(
        self,
        spec: JobSpec,
        base: Path,
        profile: ClusterProfile,
        far: Elsewhere,
        fetch: bool,
        state: Path,
        inputs: Sequence[Mapping[str, Any]],
    ) -> tuple[tuple[RepoSource, ...], list[Finding]]:
        """The checkouts of a cluster with its own disks; answers to `inputs` are kept."""
        known = {} if self.far is None else self.far
        new = [one for one in inputs if one["path"] not in known]

        def read() -> tuple[tuple[RepoSource, ...], list[Finding]]:
            repos, findings, seen = read_elsewhere(spec, base, profile, far, fetch, state, self.asks, new)
            known.update(seen)
            return repos, findings

        self.far = known
        try:
            found = self._once(("elsewhere", spec.repos, base), read)
            left = [one for one in new if one["path"] not in known]
            if left:  # of another point of a sweep
                known.update(answered(left, far.ask({"inputs": left})["inputs"], far.where, state))
        except JobspecError as problem:
            if spec.repos:
                raise  # without checkouts a plan can be made all the same; the nodes look anyway
            return (), [replace(item, severity=WARNING) for item in problem.findings]
        return found

    def image(
        self, container: ContainerPlan, profile: ClusterProfile, fetch: bool
    ) -> tuple[ContainerPlan, list[Finding]]:
        """The container with the digest of its image's tag, as the registry tells it once, and what is found.

        Without `fetch` nobody is asked.
        """
        site, told = profile.container, about_the_cache(container, profile)
        if not fetch:
            return container, told
        key = ("image", container.image, container.runtime, site.registry, site.ask_registry)
        asked, findings = self._once(key, lambda: with_tag_digest(container, profile))
        return replace(container, digest=asked.digest, by_tag=asked.by_tag), [*told, *findings]

    def model(self, spec: JobSpec, base: Path, hf_home: str, scheduler: str) -> FoundModel:
        return self._once(
            ("model", _key(spec.model), base, hf_home, scheduler),
            lambda: find_model(spec.model, base, hf_home, scheduler, self.far),
        )

    def data(self, spec: JobSpec, base: Path, hf_home: str) -> tuple[tuple[StagePlan, ...], list[Finding]]:
        return self._once(
            ("data", spec.data, base, hf_home), lambda: find_data(spec.data, base, hf_home, self.far)
        )

    def inputs(
        self, spec: JobSpec, base: Path, hf_home: str, scheduler: str
    ) -> tuple[tuple[StagePlan, ...], list[Finding]]:
        """The model and the data sets that every node must be able to read, with findings about them."""
        model = self.model(spec, base, hf_home, scheduler)
        data, findings = self.data(spec, base, hf_home)
        of_model = () if model.stage is None else (model.stage,)
        return (*of_model, *data), [*model.findings, *findings]

    def pinned(self, item: StagePlan, env: Mapping[str, str]) -> tuple[StagePlan, list[Finding]]:
        """The item with the commit that its revision names at the hub now, or an error why not."""
        if not (item.from_hub and item.repo_id and item.moves):
            return item, []
        key = ("pin", item.kind, item.repo_id, item.revision)
        commit, findings = self._once(key, lambda: _commit_at_hub(item, env))
        return (replace(item, revision=commit) if commit else item), findings

    def tree_digest(self, source: str) -> str:
        """Which files a model or data set by path has."""
        if self.far is not None:
            return self.far[source].digest if source in self.far else ""
        return self._once(("tree", source), lambda: tree_digest(source))

    def on_disk(self, plan: Plan) -> tuple[Finding, ...]:
        """Findings about the files that a plan names, as this machine sees them."""
        script = (plan.upstream.root, plan.upstream.script) if plan.upstream is not None else ()
        containers = tuple((one.image, one.mounts) for _, one in plan.containers)
        key = (plan.stage, plan.scheduler, containers, script, plan.helpers)
        look = (missing_script, missing_helpers, hidden_from_bundle)
        return self._once(
            key,
            lambda: (
                *missing_sources(plan.stage, plan.scheduler, self.far),
                *missing_image(plan, self.far),
                *(finding for rule in look for finding in rule(plan)),
            ),
        )

    def _once(self, key: object, make: Callable[[], T]) -> T:
        if key not in self._kept:
            self._kept[key] = make()
        made: T = self._kept[key]
        return made


def asked_of(
    spec: JobSpec, profile: ClusterProfile, base: Path, hf_home: str, env: Mapping[str, str]
) -> list[dict[str, Any]]:
    """What a login node is asked about image, model and data."""
    model = find_model(spec.model, base, hf_home, profile.scheduler).stage
    data, _ = find_data(spec.data, base, hf_home)
    stage = data if model is None else (model, *data)
    asked = [image_questions(one, profile, base, env) for _, one in spec.containers]
    return questions(stage, [path for paths, _ in asked for path in paths], [item for _, item in asked])


def _commit_at_hub(item: StagePlan, env: Mapping[str, str]) -> tuple[str, list[Finding]]:
    from jobspec.runtime.staging.hub_client import HubClient, Settings
    from jobspec.runtime.staging.hub_files import asked_within, commit_of

    settings = replace(Settings.of(env, tries=1), stall_s=HUB_DEADLINE_S, max_pause_s=HUB_DEADLINE_S)

    def ask() -> str:
        return commit_of(HubClient(settings), item.kind, item.repo_id, item.revision)

    try:
        return asked_within(HUB_TOTAL_S, settings.endpoint, ask), []
    except JobspecError as problem:
        told = problem.findings[0]
        path = "model" if item.kind == "model" else "data"
        what = f"which commit `{item.revision}` of `{item.repo_id}` is now is not known"
        why = f"{told.what}: {told.why}"
        return "", [error("stage.hub-unknown", what, why, "set `revision` to a commit", path=path)]


def _key(model: Model | None) -> bytes:
    """A key for the model, which holds a mapping and so is no key itself."""
    return msgspec.json.encode(model)
