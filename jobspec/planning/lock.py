"""`spec.lock.yaml`: a valid spec in which everything that could move is pinned.

A lock is made from a resolution alone, without clock or run id: resolving a lock gives the same lock.
Facts that no key of a spec can hold are below `lock`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import jobspec
from jobspec.plan import NOT_PINNED
from jobspec.planning.provenance import bundle_name, profile_digest
from jobspec.spec.interpolate import escape_data
from jobspec.spec.paths import Path, find_path, format_path, lookup, parse_path
from jobspec.spec.yaml.dump import dump_spec
from jobspec.units import is_below, utc

if TYPE_CHECKING:
    from jobspec.plan import ContainerPlan, Plan, ServicePlan, StagePlan
    from jobspec.planning.repos import RepoSource
    from jobspec.planning.resolve import Resolved
    from jobspec.runs.avoided import Avoided


PINNED_BY_SITE = (
    "container.image",
    "container.python",
    "container.source_tag",
    "hf_cache.home",
    "resources.cpus_per_node",
    "resources.exclusive",
)
HEAD = "# Written by jobspec: this run's spec with everything pinned. `jobspec submit` takes it as it is.\n"


def lock_text(resolved: Resolved, patches: str = "") -> str:
    """The lock as YAML; `patches` is the relative folder that holds `patches/`.

    Raises: ValueError without a plan; JobspecError for a value that YAML cannot hold.
    """
    data = lock_data(resolved, patches)
    return HEAD + "".join(_section(key, json.dumps(value)) for key, value in data.items())


@functools.lru_cache(maxsize=4096)
def _section(key: str, value: str) -> str:
    """One top-level key as YAML. Remembered, since the points of a sweep differ in one or two of them."""
    data = json.loads(value)
    return dump_spec({key: data if key == "user" else escape_data(data)})


def _plan(resolved: Resolved) -> Plan:
    if resolved.plan is None:
        raise ValueError("a spec with errors cannot be locked")
    return resolved.plan


def lock_data(resolved: Resolved, patches: str = "") -> dict[str, Any]:
    """The lock as plain data, keys in the spec's order, texts not yet escaped."""
    plan = _plan(resolved)
    data: dict[str, Any] = {k: v for k, v in resolved.loaded.data.items() if k != "lock"}
    data["cluster"] = plan.cluster
    data["coverage"] = {**data.get("coverage", {}), "level": plan.expect.level}
    if "launch.mode" in resolved.chosen:
        data["launch"] = {**data.get("launch", {}), "mode": plan.mode}
    if data.get("train", {}).get("command"):
        data["train"] = {**data["train"], "command": _command(data["train"]["command"], plan)}
    if data.get("services"):
        pairs = zip(data["services"], plan.services, strict=True)
        data["services"] = [_service(given, service, plan) for given, service in pairs]
    data["resources"] = {**data.get("resources", {}), **_resources(plan)}
    if plan.groups:
        named = zip(data["groups"], plan.groups, strict=True)
        data["groups"] = [{**given, "gpus_per_node": group.gpus_per_node} for given, group in named]
    data["container"] = _container(data.get("container", {}), plan.container)
    if plan.hf_home:
        data["hf_cache"] = {**data.get("hf_cache", {}), "home": plan.hf_home}
    if plan.checkpoint_dir:
        data["checkpoint"] = {**data.get("checkpoint", {}), "dir": plan.checkpoint_dir}
    if plan.repos:
        data["repos"] = [_repo(item, repo) for item, repo in zip(data["repos"], resolved.repos, strict=True)]
    if plan.expect.baseline is not None:
        data["metrics"] = {**data["metrics"], "baseline": plan.expect.baseline.place}
    _pin_stage(data, plan)
    data = {key: value for key, value in data.items() if value not in ({}, [])}
    data["lock"] = lock_facts(resolved, patches)
    of_site = _of_site(resolved, data)
    if of_site:
        data["lock"]["of_site"] = of_site
    return data


def _of_site(resolved: Resolved, data: Mapping[str, Any]) -> dict[str, Any]:
    """The values that this site gave, by their keys, as the spec had them: None for those that it left out.

    Another site gives values of its own. A lock that is resolved keeps what its first site gave.
    """
    given, raw = resolved.loaded.data, resolved.loaded.raw
    before = given.get("lock", {})
    containers = _plan(resolved).containers
    own = (f"{at}{key}" for at, _ in containers[1:] for key in PINNED_BY_SITE if key.startswith("container."))
    pinned = (parse_path(key) for key in (*PINNED_BY_SITE, *own))
    # The file stands for the spec's reference.
    cached = {parse_path(f"{at}container") for at, one in containers if one.cached is not None}
    changed = [
        path
        for path in pinned
        if _at(given, path) != _at(data, path) and (_of_profile(_at(raw, path)) or path[:-1] in cached)
    ]
    filled = [path for path in resolved.loaded.cluster_paths if path[0] != "lock"]
    texts = {format_path(path): _at(raw, path) for path in (*filled, *changed)}
    names = {f"slurm.{key}": None for key in data.get("slurm", {})}  # which no other site has
    kept = before.get("of_site") if isinstance(before, dict) else None
    return {**texts, **(kept if isinstance(kept, dict) else {}), **names}


def _of_profile(text: Any) -> bool:
    """Whether a pinned value comes from the profile: left out, or a name in a folder of the site."""
    return text is None or "/" not in str(text)


def _at(data: Mapping[str, Any], path: Path) -> Any:
    return lookup(data, path) if find_path(data, path) else None


def _command(words: Sequence[str], plan: Plan) -> list[str]:
    found = plan.commands[0].argv if plan.commands and len(plan.commands[0].argv) == len(words) else words
    return _pinned_words(words, found, plan)


def _pinned_words(words: Sequence[str], found: Sequence[str], plan: Plan) -> list[str]:
    """A command with the files that the plan has found: relative to their checkout, else absolute."""
    pinned = []
    for word, path in zip(words, found, strict=True):
        repo = next((repo.path for repo in plan.repos if is_below(path, repo.path)), None)
        moved = (
            path != word and posixpath.isabs(path) and posixpath.basename(path) == posixpath.basename(word)
        )
        pinned.append((posixpath.relpath(path, repo) if repo else path) if moved else word)
    return pinned


def _resources(plan: Plan) -> dict[str, Any]:
    resources = {"nodes": plan.nodes, "gpus_per_node": plan.gpus_per_node}
    if plan.scheduler == "slurm":
        resources["exclusive"] = plan.slurm.exclusive
        if plan.slurm.cpus_per_task and not plan.groups:
            resources["cpus_per_node"] = plan.slurm.cpus_per_task
    if plan.groups:  # each has its own
        del resources["gpus_per_node"]
    return resources


def _service(given: Mapping[str, Any], service: ServicePlan, plan: Plan) -> dict[str, Any]:
    pinned = {**given, "command": _pinned_words(given["command"], service.argv, plan)}
    if service.container is not None:
        pinned["container"] = _container(given["container"], service.container)
    return pinned


def _container(given: Mapping[str, Any], container: ContainerPlan) -> dict[str, Any]:
    pinned: dict[str, Any] = {**given, "python": container.python}
    if container.image:
        pinned["image"] = container.image
    if container.cached:
        pinned["source_tag"] = container.cached.reference
    mounts = given.get("mounts")
    if mounts:
        sources = [mount.source for mount in container.mounts]
        pinned["mounts"] = [
            {**mount, "source": source} for mount, source in zip(mounts, sources, strict=False)
        ]
    return pinned


def _repo(item: Mapping[str, Any], repo: RepoSource) -> dict[str, Any]:
    pinned = dict(item)
    if "path" in pinned:
        pinned["path"] = repo.state.path  # of the checkout, where the plan has that of its frozen copy
    if repo.there:
        pinned.pop("sync", None)  # the path is that of the copy, which is the cluster's
    if repo.plan.commit:
        pinned["ref"] = repo.plan.commit
    return pinned


def _pin_stage(data: dict[str, Any], plan: Plan) -> None:
    """Pin the model and the data sets in `data`: by id to the commit, by path to the absolute path.

    The path of a cache folder becomes that of its snapshot.
    """
    staged = {(item.kind, item.name): item for item in plan.stage}
    if "model" in data:
        data["model"] = _pinned(data["model"], "id", "path", staged.get(("model", "model")))
    if "data" in data:
        data["data"] = [
            _pinned(item, "source", "source", staged.get(("dataset", item["name"]))) for item in data["data"]
        ]


def _pinned(item: Mapping[str, Any], by_id: str, by_path: str, staged: StagePlan | None) -> dict[str, Any]:
    if staged is None:
        return dict(item)
    if staged.repo_id and item.get(by_id) == staged.repo_id:
        return {**item, "revision": staged.revision}
    where = f"{staged.source}/snapshots/{staged.revision}" if staged.layout == "hf" else staged.source
    return {**item, by_path: where}


def lock_facts(resolved: Resolved, patches: str = "") -> dict[str, Any]:
    """What stands below `lock`. Raises: as `lock_text`."""
    plan = _plan(resolved)
    facts: dict[str, Any] = {
        "jobspec": jobspec.__version__,
        "cluster_sha256": profile_digest(resolved.cluster.profile),
    }
    if resolved.avoided:  # what kept the run off nodes; the list of the day decides about the lock's next run
        facts["avoided"] = {item.node: _avoided(item) for item in resolved.avoided}
    facts |= _image_facts(plan.container)
    of_services = {name: _image_facts(container) for name, container in plan.service_containers.items()}
    if any(of_services.values()):
        facts["services"] = {name: told for name, told in of_services.items() if told}
    moving = {item.name: f"not pinned: `{item.revision}` may move" for item in plan.stage if item.moves}
    if moving:
        facts["revisions"] = moving
    inputs = {
        item.name: resolved.lookups.tree_digest(item.source) for item in plan.stage if item.layout == "plain"
    }
    if any(inputs.values()):
        facts["inputs"] = {name: digest for name, digest in inputs.items() if digest}
    repos = {repo.plan.name: _repo_facts(repo, patches) for repo in resolved.repos}
    if repos:
        facts["repos"] = repos
    return facts


def _image_facts(container: ContainerPlan) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if container.digest or container.pin == NOT_PINNED:
        facts["image"] = container.pin
    if container.cached:
        facts["cached_image"] = {**asdict(container.cached)}
    return facts


def _avoided(item: Avoided) -> dict[str, Any]:
    told = {"reason": item.reason, "run": item.run, "attempt": item.attempt, "line": item.text}
    return {**{key: value for key, value in told.items() if value}, "until": utc(item.until)}


def _repo_facts(repo: RepoSource, patches: str) -> dict[str, Any]:
    plan = repo.plan
    facts: dict[str, Any] = {
        "commit": plan.commit,
        "branch": plan.branch,
        "url": plan.url,
        "dirty": plan.dirty,
        "inside": repo.state.inside,
    }
    if not plan.commit:
        facts["commit"] = "not known: no git checkout with a commit"
    if repo.patch:
        facts |= {"patch": posixpath.join(patches, repo.patch), "patch_sha256": repo.state.diff_sha256}
    for module, content in repo.bundles.items():
        name = posixpath.join(patches, bundle_name(plan.name, module))
        sealed = {"bundle": name, "bundle_sha256": hashlib.sha256(content).hexdigest()}
        facts = (
            {**facts, "submodules": {**facts.get("submodules", {}), module: sealed}}
            if module
            else facts | sealed
        )
    if repo.state.left_out:
        facts["left_out"] = [*repo.state.left_out]
    return {key: value for key, value in facts.items() if value not in ("", False)}
