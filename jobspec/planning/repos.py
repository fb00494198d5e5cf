"""What a run reads: source checkouts, models and data sets. Looks at disks, changes nothing but clones.

A model or data set by id lies in the Hugging Face cache as `hub/models--org--name`; one by path is such a
folder, a snapshot inside one, or a plain folder or file.
Source of the layout: huggingface_hub's "Understand caching" guide.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.finding import Finding, error, warning
from jobspec.plan import Plan, RepoPlan, StagePlan, data_variable
from jobspec.planning.git import GitState, checkout, git_state, resolve_ref, strip_credentials
from jobspec.planning.provenance import hub_commit, patch_name
from jobspec.units import is_below

if TYPE_CHECKING:
    from jobspec.spec.job import Data, JobSpec, Model, Repo

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+|[A-Za-z0-9][\w.-]*")
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class RepoSource:
    """A repository of the spec: what the plan says about it, and the state that was found.

    `patch` is the run directory's file for `state.diff`, empty when there is nothing to save.
    """

    plan: RepoPlan
    state: GitState
    prove: str = ""
    patch: str = ""


def read_repos(
    spec: JobSpec, base: Path, runs: str | None, fetch: bool = False
) -> tuple[tuple[RepoSource, ...], list[Finding]]:
    """Every repository with its git state, in the spec's order.

    A repository by URL lies in `<runs>/.checkouts/<name>-<ref>`; `fetch` clones it when it is not there.
    """
    sources: list[RepoSource] = []
    findings: list[Finding] = []
    for index, repo in enumerate(spec.repos):
        where = f"repos[{index}]"
        folder = _repo_folder(repo, base, runs or str(base))
        if repo.url and fetch:
            checkout(repo.url, repo.ref or "", folder)
        state = git_state(folder) if _is_readable(folder) else GitState(str(folder))
        findings += _repo_findings(repo, folder, state, where)
        sources.append(_repo_source(repo, folder, state))
    return tuple(sources), findings


def _repo_folder(repo: Repo, base: Path, runs: str) -> Path:
    if repo.path is not None:
        return Path(os.path.normpath(base / os.path.expanduser(repo.path)))  # noqa: PTH111 - relative is kept
    ref = re.sub(r"[^\w.-]", "_", repo.ref or "HEAD")[:40]
    return Path(runs) / ".checkouts" / f"{repo.name}-{ref}"


def _repo_source(repo: Repo, folder: Path, state: GitState) -> RepoSource:
    plan = RepoPlan(
        name=repo.name,
        path=str(folder),
        url=strip_credentials(repo.url or "") or state.url,
        commit=state.commit,
        dirty=state.dirty,
        pythonpath=tuple(os.path.normpath(folder / part) for part in repo.pythonpath),
    )
    return RepoSource(
        plan,
        state,
        repo.prove.module if repo.prove else "",
        patch_name(repo.name) if state.diff else "",
    )


def _repo_findings(repo: Repo, folder: Path, state: GitState, where: str) -> Iterable[Finding]:
    if not is_folder(folder):
        yield _missing_checkout(repo, folder, where)
        return
    if not _is_readable(folder):
        yield unreadable(str(folder), "permission denied", f"{where}.path")
        return
    for part in repo.pythonpath:
        if not is_folder(folder / part):
            yield error(
                "repo.pythonpath",
                f"`{folder / part}` is no folder",
                fix=f"name folders below `{folder}`",
                path=f"{where}.pythonpath",
            )
    if not state.is_checkout:
        yield warning(
            "repo.not-git",
            f"`{folder}` is no git checkout with a commit",
            why="nobody can tell later which code ran",
            fix="commit the code to a git repository",
            path=f"{where}.path",
        )
    elif repo.ref:
        yield from _ref_findings(repo, folder, state, where)
    if state.left_out:
        names = ", ".join(f"`{name}`" for name in state.left_out[:5])
        yield warning(
            "repo.left-out",
            f"{len(state.left_out)} changed file(s) of `{repo.name}` are not in its patch: {names}",
            why="they look private, are larger than 2 MiB, or are submodules: a lock cannot bring them back",
            fix="commit them, or keep them out of the run",
            path=where,
        )


def _missing_checkout(repo: Repo, folder: Path, where: str) -> Finding:
    if repo.url:
        return warning(
            "repo.not-fetched",
            f"`{repo.name}` is not cloned to `{folder}` yet, so its files were not checked",
            fix="`jobspec submit` clones it",
            path=f"{where}.url",
        )
    what = f"`{folder}` {why_not_there(folder)}"
    return error("repo.missing", what, fix="check the path", path=f"{where}.path")


def is_folder(path: str | Path) -> bool:
    """As `Path.is_dir`, which raises where a folder above may not be entered."""
    return os.path.isdir(path)  # noqa: PTH112


def _is_readable(folder: Path) -> bool:
    try:
        os.scandir(folder).close()
    except OSError:
        return False
    return True


def unreadable(path: str, why: str, where: str = "repos") -> Finding:
    """The error about a checkout, or about something in it, that this user may not read."""
    fix = "check its permissions, and those of the folders above it"
    return error("repo.unreadable", f"`{path}` cannot be read", why, fix, path=where)


def why_not_there(path: str | Path) -> str:
    """Why a path that is looked for leads nowhere: an end of a sentence about it."""
    try:
        os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, ValueError):
        return "does not exist"
    except OSError as problem:
        return f"cannot be reached: {(problem.strerror or str(problem)).lower()}"
    return "is no folder"


def _ref_findings(repo: Repo, folder: Path, state: GitState, where: str) -> Iterable[Finding]:
    wanted = resolve_ref(folder, repo.ref or "")
    if not wanted:
        yield error(
            "repo.ref-unknown",
            f"the checkout `{folder}` does not have `{repo.ref}`",
            fix=f"git -C {folder} fetch --all --tags",
            path=f"{where}.ref",
        )
    elif wanted != state.commit:
        yield error(
            "repo.ref-mismatch",
            f"`{repo.name}` is at {state.commit[:12]}, the spec wants `{repo.ref}` ({wanted[:12]})",
            why="the run would use other code than the spec says",
            fix=f"git -C {folder} checkout {repo.ref}, or change `ref`",
            path=f"{where}.ref",
        )


def stage_plans(spec: JobSpec, base: Path, hf_home: str) -> tuple[tuple[StagePlan, ...], list[Finding]]:
    """What the spec's model and data sets ask to be made readable on every node."""
    findings: list[Finding] = []
    plans = []
    if spec.model is not None:
        plans.append(_model(spec.model, base, hf_home, findings))
    for index, data in enumerate(spec.data):
        plans.append(_data(data, base, hf_home, f"data[{index}]", findings))
    return tuple(plan for plan in plans if plan is not None), findings


def stage_plan_of_model(model: Model, base: Path, hf_home: str) -> StagePlan | None:
    """Where a spec's model lies; None when it is an id and no cache is known."""
    return _model(model, base, hf_home, [])


def _model(model: Model, base: Path, hf_home: str, findings: list[Finding]) -> StagePlan | None:
    if model.id is not None:
        plan: StagePlan | None = _hub(
            "model", "model", model.id, model.revision, hf_home, "model.id", findings
        )
    else:
        plan = _by_path("model", "model", model.path or "", model.revision, base)
    return plan and replace(
        plan,
        node_local=model.stage == "node_local",
        env="JOBSPEC_MODEL_PATH",
        require=model.require,
        allow=model.allow,
        ignore=model.ignore,
    )


def _data(data: Data, base: Path, hf_home: str, where: str, findings: list[Finding]) -> StagePlan | None:
    plan: StagePlan | None
    if data.source.startswith((".", "/", "~")) or os.path.exists(base / data.source):  # noqa: PTH110 - never raises
        plan = _by_path(data.name, "dataset", data.source, data.revision, base)
    elif HUB_ID.fullmatch(data.source):
        plan = _hub(data.name, "dataset", data.source, data.revision, hf_home, f"{where}.source", findings)
    else:
        findings.append(
            error(
                "data.source",
                f"`{data.source}` is neither a path nor a Hugging Face id",
                fix="write `org/name`, or a path that starts with `./` or `/`",
                path=f"{where}.source",
            )
        )
        return None
    return plan and replace(plan, node_local=data.stage == "node_local", env=data_variable(data.name))


def _hub(
    name: str,
    kind: str,
    repo_id: str,
    revision: str | None,
    hf_home: str,
    where: str,
    findings: list[Finding],
) -> StagePlan | None:
    if not hf_home:
        findings.append(
            error(
                "stage.no-hf-home",
                f"`{repo_id}` is a Hugging Face id, but no cache is known",
                fix="set `hf_cache.home`, or `paths.hf_home` in the site profile",
                path=where,
            )
        )
        return None
    cache = f"{hf_home}/hub/{kind}s--{repo_id.replace('/', '--')}"
    commit = hub_commit(cache, revision or "main")
    return StagePlan(name, kind, cache, "hf", repo_id, commit or revision or "main")


def _by_path(name: str, kind: str, path: str, revision: str | None, base: Path) -> StagePlan:
    source = Path(os.path.normpath(base / os.path.expanduser(path)))  # noqa: PTH111 - relative is kept
    if source.parent.name == "snapshots" and _cache_id(source.parent.parent.name):
        return StagePlan(
            name,
            kind,
            str(source.parent.parent),
            "hf",
            _cache_id(source.parent.parent.name),
            source.name,
        )
    repo_id = _cache_id(source.name)
    if repo_id:
        commit = hub_commit(source, revision or "main")
        return StagePlan(name, kind, str(source), "hf", repo_id, commit or revision or "main")
    return StagePlan(name, kind, str(source), "plain", "", revision or "")


def missing_sources(stage: Iterable[StagePlan], scheduler: str) -> tuple[Finding, ...]:
    """A warning for each source that is not there; none where its file system is not mounted here either.

    `validate` may run on a laptop, so a missing root folder says nothing about the cluster.
    """
    return tuple(
        warning(
            "stage.missing",
            f"`{item.source}` {why_not_there(item.source)}",
            why=f"the {item.kind} `{item.repo_id or item.name}` is read from there",
            fix="`jobspec stage` puts it there" if item.repo_id else "check the path",
            path="model" if item.kind == "model" else "data",
        )
        for item in stage
        if is_missing(item, scheduler)
    )


def is_missing(item: StagePlan, scheduler: str) -> bool:
    """Whether a source is not there; never of one whose file system is not mounted here either."""
    seen_here = scheduler == "local" or is_folder(Path(*Path(item.source).parts[:2]))
    return seen_here and not os.path.exists(item.source)  # noqa: PTH110 - never raises


def files_of(item: StagePlan) -> Path:
    """The folder that has a source's files: a cache keeps them below its revision."""
    root = Path(item.source)
    return root if item.layout == "plain" else root / "snapshots" / item.revision


def missing_script(plan: Plan) -> tuple[Finding, ...]:
    """An error when the checkout is here and lacks the batch script that mode `upstream` runs."""
    script = plan.upstream
    if script is None or not _is_readable(Path(script.root)) or Path(script.root, script.script).is_file():
        return ()
    return (
        error(
            "launch.upstream-unsupported",
            f"`{script.root}` has no `{script.script}`",
            why="mode `upstream` runs the checkout's own batch script",
            fix="use a checkout that has it, or `launch: {mode: ray}`",
            path="launch.mode",
        ),
    )


def missing_helpers(plan: Plan) -> tuple[Finding, ...]:
    """An error when a checkout is here and lacks the folder that the dataset helpers are built from."""
    source = plan.helpers.source if plan.helpers is not None else ""
    repo = next((repo for repo in plan.repos if source and is_below(source, repo.path)), None)
    if repo is None or not is_folder(repo.path) or is_folder(source):
        return ()
    return (
        error(
            "repo.helpers",
            f"`{source}` is no folder",
            why=f"the dataset helpers are built from it, in the checkout `{repo.name}`",
            fix="correct `mcore_helpers.subdir`, or run `git submodule update --init` in the checkout",
            path="mcore_helpers",
        ),
    )


def hidden_from_bundle(plan: Plan) -> tuple[Finding, ...]:
    """An error for each folder that the run needs and an OCI bundle's own config.json does not mount.

    Slurm starts the bundle as it is, so its mounts cannot be added to. Nothing is said about a bundle that
    cannot be read here.
    """
    container = plan.container
    config = Path(container.image) / "config.json"
    if container.runtime != "oci" or not os.path.isfile(config):  # noqa: PTH113 - never raises
        return ()
    try:
        mounts = json.loads(config.read_text()).get("mounts", [])
        targets = [
            str(mount["destination"]) for mount in mounts if mount.get("source") == mount["destination"]
        ]
    except (ValueError, AttributeError, KeyError, TypeError) as problem:
        what = f"`{config}` is no OCI configuration: {problem}"
        return (error("container.oci-config", what, fix="make the bundle again", path="container.image"),)
    needed = dict.fromkeys((plan.runs, *(mount.source for mount in container.mounts)))
    return tuple(
        error(
            "container.oci-mount",
            f"the bundle `{container.image}` does not mount `{path}`",
            why="Slurm's OCI support starts a bundle with its own mounts and no others",
            fix=f"add a bind mount of `{path}` under the same name to {config}",
            path="container.image",
        )
        for path in needed
        if not any(is_below(path, target) for target in targets)
    )


def _cache_id(folder: str) -> str:
    """`org/name` of a cache folder's name, empty for any other folder."""
    kind, mark, rest = folder.partition("--")
    return rest.replace("--", "/", 1) if mark and kind in ("models", "datasets") else ""
