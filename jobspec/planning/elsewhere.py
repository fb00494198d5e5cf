"""The checkouts of a spec whose cluster is behind `access.login`: the cluster's own, not this machine's.

Rules and adapters read files, so this machine keeps a copy of the text files of each of the cluster's
checkouts, named by their content. A plan is made with the paths of these copies; `moved` puts the cluster's
in their place. A checkout that is only here is copied there once, by `planning.sync`.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import os
import shutil
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from jobspec.disk import is_folder
from jobspec.finding import Finding, error, warning
from jobspec.plan import Plan, from_json, to_json
from jobspec.planning.far_inputs import FarInput, answered
from jobspec.planning.paths import exchanged
from jobspec.planning.repos import (
    RepoSource,
    clone_command,
    read_repos,
    ref_findings,
    repo_findings,
    repo_source,
)
from jobspec.planning.sync import bring
from jobspec.runtime.base.safe_write import beside
from jobspec.runtime.checkouts.code_state import CodeState
from jobspec.runtime.checkouts.git import GitState, root_of

if TYPE_CHECKING:
    from jobspec.spec.find_site import Elsewhere
    from jobspec.spec.job import JobSpec, Repo
    from jobspec.spec.site import ClusterProfile

COPIES_KEPT_S = 7 * 86400.0  # since their last use: another command may read one right now


@dataclass(frozen=True)
class _Asked:
    """A repository of the spec: this machine's own checkout, if there is one, and where a copy of it goes."""

    repo: Repo
    where: str
    own: RepoSource | None
    own_findings: tuple[Finding, ...]
    target: str = ""
    framework: str = ""


def read_elsewhere(
    spec: JobSpec,
    base: Path,
    profile: ClusterProfile,
    far: Elsewhere,
    fetch: bool,
    state: Path,
    asks: bool = False,
    inputs: Sequence[Mapping[str, Any]] = (),
) -> tuple[tuple[RepoSource, ...], list[Finding], dict[str, FarInput]]:
    """`read_repos` for a cluster with file systems of its own, and what `inputs` ask: one question to `far`.

    With `fetch` a checkout that is only here is copied there. `state` is this machine's folder for copies.
    Raises: JobspecError when `far` cannot be asked.
    """
    parent = (
        f"{profile.paths.scratch}/jobspec/code"
        if profile.paths.scratch
        else f"{profile.paths.runs}/.checkouts"
    )
    asked = [_asked(spec, index, base, parent, state, fetch, asks) for index in range(len(spec.repos))]
    copies = state / "code"
    said = far.ask({"look": [_question(one, base, copies) for one in asked], "inputs": list(inputs)})
    answers = said["looked"]
    sources: list[RepoSource] = []
    findings: list[Finding] = []
    for one, seen in zip(asked, answers, strict=True):
        about = [Finding.from_json(item) for item in seen.get("findings", ())]
        findings += [replace(item, path=f"{one.where}.path") for item in about]
        if about:
            sources.append(_absent(one, base))
            continue
        uses_own = _is_ours(one.repo) or (bool(seen["why"]) and one.own is not None)
        source, problems = (
            _own(one, seen, far, fetch, state) if uses_own else _theirs(one, seen, far.where, copies)
        )
        sources.append(source)
        findings += problems
    return tuple(sources), findings, answered(inputs, said["inputs"], far.where, state)


def moved(
    plan: Plan | None, repos: Sequence[RepoSource], findings: Sequence[Finding]
) -> tuple[Plan | None, tuple[RepoSource, ...], tuple[Finding, ...]]:
    """The same with the cluster's paths in place of this machine's."""
    places = {repo.plan.path: repo.there for repo in repos if repo.there}
    copies = {
        repo.plan.path: repo.there for repo in repos if repo.there and repo.state.path != repo.plan.path
    }
    if plan is not None:
        plan = from_json(json.dumps(_exchanged_in(json.loads(to_json(plan)), places)))
    plans = plan.repos if plan is not None else tuple(repo.plan for repo in repos)
    return (
        plan,
        tuple(
            replace(repo, plan=done, state=replace(repo.state, path=repo.there)) if repo.there else repo
            for repo, done in zip(repos, plans, strict=True)
        ),
        tuple(
            replace(
                item,
                what=exchanged(item.what, copies),
                why=exchanged(item.why, copies),
                fix=exchanged(item.fix, copies),
            )
            for item in findings
        ),
    )


def _exchanged_in(value: Any, places: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return exchanged(value, places)
    if isinstance(value, list):
        return [_exchanged_in(item, places) for item in value]
    if isinstance(value, dict):
        return {exchanged(key, places): _exchanged_in(item, places) for key, item in value.items()}
    return value


def _asked(
    spec: JobSpec, index: int, base: Path, parent: str, state: Path, fetch: bool, asks: bool
) -> _Asked:
    repo, where = spec.repos[index], f"repos[{index}]"
    here = os.path.normpath(base / os.path.expanduser(repo.path or ""))  # noqa: PTH111 - relative is kept
    if repo.url is None and not is_folder(here):
        return _Asked(repo, where, None, (), framework=spec.framework)
    alone = structs.replace(spec, repos=(structs.replace(repo, freeze=False),))
    (own,), found = read_repos(alone, base, str(state), fetch, asks)
    findings = tuple(replace(item, path=item.path.replace("repos[0]", where)) for item in found)
    target = _target(own, parent) if own.state.is_checkout else ""
    return _Asked(repo, where, own, findings, target, spec.framework)


def _target(own: RepoSource, parent: str) -> str:
    """The folder of a checkout's copy on the cluster, named by its content."""
    changes = CodeState(changes=own.plan.changes or {}).changes_sha256
    digest = hashlib.sha256(f"{own.state.diff_sha256} {changes}".encode()).hexdigest()
    return f"{parent}/{own.plan.name}-{own.state.commit[:12]}-{digest[:12]}"


def _is_ours(repo: Repo) -> bool:
    """Whether the run uses this machine's checkout, whatever the cluster has at its path."""
    return repo.url is not None or repo.sync


def _question(one: _Asked, base: Path, copies: Path) -> dict[str, Any]:
    question: dict[str, Any] = {"name": one.repo.name, "target": one.target}
    if _is_ours(one.repo):
        return question  # without a path nothing of the cluster is read
    path = one.repo.path or ""  # `~` is the cluster's
    return {
        **question,
        "path": path if path.startswith("~") else os.path.normpath(base / path),
        "ref": one.repo.ref or "",
        "has": [folder.name for folder in (copies / one.repo.name).glob("*")],
    }


def _absent(one: _Asked, base: Path) -> RepoSource:
    folder = Path(os.path.normpath(base / (one.repo.path or "")))
    return repo_source(one.repo, folder, GitState(str(folder)), CodeState(unknown="it was not read"))


def _theirs(
    one: _Asked, seen: Mapping[str, Any], login: str, copies: Path
) -> tuple[RepoSource, list[Finding]]:
    """The cluster's checkout, by a copy of its files."""
    repo, there = one.repo, seen["path"]
    if seen["why"]:
        what = f"`{there}` {seen['why']} on `{login}`, and there is no such folder on this machine"
        fix = "check the path: it is one of the cluster's"
        command = clone_command(repo.name, one.framework, there) if seen["why"] == "does not exist" else ""
        if command:
            fix = f"run `{command}` on `{login}`, or check the path"
        missing = error("repo.missing", what, fix=fix, path=f"{one.where}.path")
        return replace(_absent(one, Path("/")), there=there), [missing]
    given = dict(seen["state"])
    given |= {"diff": base64.b64decode(given["diff"]), "left_out": tuple(given["left_out"])}
    state, code = GitState(**given), CodeState(**seen["code"])
    folder = _copy(copies, repo.name, seen)
    findings = list(repo_findings(structs.replace(repo, ref=None), folder, state, one.where))
    if repo.ref and state.is_checkout:
        findings += ref_findings(repo, folder, state, one.where, seen["ref"])
    findings += _two_sides(one, state, code, login)
    return replace(repo_source(repo, folder, state, code), there=there), findings


def _two_sides(one: _Asked, state: GitState, code: CodeState, login: str) -> Iterator[Finding]:
    own = one.own
    if own is None or not own.state.is_checkout:
        return
    if (own.state.commit, own.plan.changes) != (state.commit, code.changes):
        yield warning(
            "repo.two-sides",
            f"`{one.repo.name}` is {_told(state)} on `{login}`, and {_told(own.state)} on this machine",
            why="the run uses the cluster's, and plan, lock and report show that one",
            fix=f"bring the cluster's up to date, or set `{one.where}.sync: true` to run this machine's",
            path=f"{one.where}.path",
        )


def _told(state: GitState) -> str:
    commit = f"at {state.commit[:12]}" if state.commit else "without a commit"
    return f"{commit}, with uncommitted changes" if state.dirty else commit


def _own(
    one: _Asked, seen: Mapping[str, Any], far: Elsewhere, fetch: bool, state: Path
) -> tuple[RepoSource, list[Finding]]:
    """This machine's checkout, which the run finds as a copy on the cluster."""
    findings = list(one.own_findings)
    if one.own is None:
        what = f"`{one.repo.path}` is no folder on this machine"
        findings.append(error("repo.missing", what, fix="check the path", path=f"{one.where}.path"))
        return _absent(one, Path("/")), findings
    if not one.target:
        if one.repo.url is None:
            what = f"`{one.own.plan.path}` is only on this machine, and cannot be copied to `{far.where}`"
            fix = f"commit it to a git repository, or put it on `{far.where}` and name that path"
            findings.append(error("repo.sync", what, "it has no commit", fix, path=f"{one.where}.path"))
        return one.own, findings
    own_path = one.own.plan.path
    root = root_of(own_path)
    inside = os.path.relpath(os.path.realpath(own_path), os.path.realpath(root))
    if one.repo.url is None:
        findings.append(
            warning(
                "repo.synced",
                f"`{own_path}` is this machine's: the run uses a copy of it, `{one.target}` on `{far.where}`",
                why="submission copies commit and uncommitted changes, without files that git ignores",
                path=f"{one.where}.path",
            )
        )
    if fetch and not seen["is_made"]:
        bring(one.repo.name, Path(root), one.target, far, state / "outbox")
    return replace(one.own, there=os.path.normpath(f"{one.target}/{inside}")), findings


def _copy(copies: Path, name: str, seen: Mapping[str, Any]) -> Path:
    """The copy of a checkout's files on this machine; those of this name that nobody uses any more go."""
    folder: Path = copies / name / seen["digest"]
    if "files" in seen and not folder.is_dir():
        scratch = beside(folder)
        try:
            scratch.mkdir(parents=True)
            with zipfile.ZipFile(io.BytesIO(base64.b64decode(seen["files"]))) as archive:
                archive.extractall(scratch)
            scratch.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another command has made it meanwhile
                raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    os.utime(folder)
    for other in folder.parent.iterdir():
        with contextlib.suppress(OSError):
            if other.stat().st_mtime < time.time() - COPIES_KEPT_S:
                shutil.rmtree(other)
    return folder
