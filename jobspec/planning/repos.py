"""The source checkouts of a spec: where they lie, and their git states. Writes nothing but clones."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.disk import is_folder, is_readable, why_not_there
from jobspec.finding import Finding, JobspecError, error, fail, warning
from jobspec.plan import RepoPlan
from jobspec.planning.clones import (
    Source,
    asked,
    cache_below,
    commit_of,
    fetched,
    is_fixed,
    known_commit,
)
from jobspec.planning.frozen import freeze
from jobspec.planning.git_bundle import ORIGIN_HAS, write_bundle
from jobspec.planning.provenance import patch_name
from jobspec.runtime.checkouts.code_state import CodeState, code_state
from jobspec.runtime.checkouts.git import (
    GitState,
    all_submodules,
    git_in,
    git_state,
    lfs_pointers,
    resolve_ref,
    root_of,
    strip_credentials,
)

if TYPE_CHECKING:
    from jobspec.spec.job import JobSpec, Repo

_HUB = "https://github.com"
# What `git clone` is told of a checkout that is missing, by its name in the framework's starting spec.
UPSTREAM = {
    "bridge": f"{_HUB}/NVIDIA-NeMo/Megatron-Bridge",
    "nemo_rl": f"{_HUB}/NVIDIA-NeMo/RL",
    "rlix": f"--branch nemo {_HUB}/rlops/rlix",
    "skyrl": f"{_HUB}/NovaSky-AI/SkyRL",
    "verl": f"{_HUB}/verl-project/verl",
}
UPSTREAM_OF_RLIX = {**UPSTREAM, "nemo_rl": f"{_HUB}/TianyeGGBond/RL"}  # the fork with RLix's hooks
MAX_SAVED_BYTES = 64 * 1024**2  # of unpushed commits, in each run's folder


@dataclass(frozen=True)
class RepoSource:
    """A repository of the spec: its part of the plan, and the git state of its checkout.

    `patch` is the run directory's file for `state.diff`, empty when there is nothing to save. `copy` is the
    frozen copy that the plan's path lies in. `bundles` have the commits that an `origin` lacks, by submodule,
    the checkout's own under an empty name. `there` is the path on a cluster with other disks than ours.
    """

    plan: RepoPlan
    state: GitState
    prove: str = ""
    patch: str = ""
    copy: Path | None = None
    bundles: Mapping[str, bytes] = field(default_factory=dict)
    there: str = ""


def read_repos(
    spec: JobSpec, base: Path, runs: str | None, fetch: bool = False, asks: bool = False
) -> tuple[tuple[RepoSource, ...], list[Finding]]:
    """Every repository with its git state, in the spec's order.

    A repository by URL is a clone below `<runs>/.checkouts`; `fetch` makes a missing one, and the copy of one
    with `freeze`. `asks` lets its server say which commit a branch is now. With `fetch` the
    commits that a checkout has not pushed are packed.
    """
    sources: list[RepoSource] = []
    findings: list[Finding] = []
    for index, repo in enumerate(spec.repos):
        where = f"repos[{index}]"
        folder, about_clone = _repo_folder(repo, base, runs or str(base), fetch, asks)
        findings += about_clone
        state = git_state(folder) if is_readable(folder) else GitState(str(folder))
        findings += repo_findings(repo, folder, state, where, spec.framework)
        code = code_state(str(folder))
        copy = None
        if repo.freeze and fetch and is_folder(folder):
            try:
                copy, folder = freeze(repo.name, state, code, runs or str(base))
                code = code_state(str(folder))
            except JobspecError as problem:
                findings += [replace(finding, path=f"{where}.freeze") for finding in problem.findings]
        bundles, about_bundles = _packed(repo, state, where) if fetch and not repo.url else ({}, [])
        findings += about_bundles
        sources.append(replace(repo_source(repo, folder, state, code), copy=copy, bundles=bundles))
    return tuple(sources), findings


def _packed(repo: Repo, state: GitState, where: str) -> tuple[dict[str, bytes], list[Finding]]:
    """The commits that the `origin` of the checkout or of a submodule lacks, or a warning why not."""
    if not state.is_checkout:
        return {}, []
    bundles, findings = {}, []
    root = root_of(state.path)
    for module in ("", *all_submodules(root)):
        try:
            content = _bundle_of(f"{root}/{module}" if module else state.path)
        except JobspecError as problem:
            (cause,) = problem.findings
            name = f"`{repo.name}`" + (f"'s submodule `{module}`" if module else "")
            what = f"the commits of {name} that its `origin` lacks are not saved with the run"
            fix = "push them"
            findings.append(warning("repo.bundle", what, cause.why or cause.what, fix, path=where))
            continue
        if content:
            bundles[module] = content
    return bundles, findings


def _bundle_of(checkout: str) -> bytes:
    _refuse_large(checkout)
    with tempfile.TemporaryDirectory(prefix="jobspec-") as scratch:
        sealed = write_bundle(checkout, Path(scratch) / "bundle", limit=MAX_SAVED_BYTES)
        return b"" if sealed is None else sealed.path.read_bytes()


def _refuse_large(checkout: str) -> None:
    """Raises: JobspecError where packing would take long for nothing."""
    done = git_in(checkout, "rev-list", "--disk-usage", "--objects", "HEAD", *ORIGIN_HAS)
    size = done.stdout.decode().strip()
    if size.isdecimal() and int(size) > 2 * MAX_SAVED_BYTES:  # git before 2.31 does not tell
        raise fail("repo.bundle", "too large", f"they take {size} bytes, and {MAX_SAVED_BYTES} are allowed")


def proof_root(source: RepoSource) -> str:
    """The folder that a proved module must come from: that of `pythonpath` which holds it, else the checkout.

    A checkout may hold an installed copy beside its sources, in a `.venv` for one.
    """
    inside = source.prove.replace(".", "/")
    folders = (folder for folder in source.plan.pythonpath if _holds(Path(folder), inside))
    return next(folders, source.plan.path)


def _holds(folder: Path, inside: str) -> bool:
    try:
        return (folder / inside).is_dir() or (folder / f"{inside}.py").is_file()
    except OSError:  # not for this user: the checkout itself is reported elsewhere
        return False


def _repo_folder(repo: Repo, base: Path, runs: str, fetch: bool, asks: bool) -> tuple[Path, list[Finding]]:
    if repo.url is None:
        path = os.path.normpath(base / os.path.expanduser(repo.path or ""))  # noqa: PTH111 - relative is kept
        return Path(path), []
    source = Source(repo.url, repo.ref or "HEAD", repo.name, cache_below(runs))
    if fetch:
        return fetched(source)
    commit, findings = asked(source) if asks else (known_commit(source), [])
    return source.folder(commit or (repo.ref if is_fixed(repo.ref or "") else "") or "unknown"), findings


def repo_source(repo: Repo, folder: Path, state: GitState, code: CodeState) -> RepoSource:
    plan = RepoPlan(
        name=repo.name,
        path=str(folder),
        url=strip_credentials(repo.url or "") or state.url,
        commit=state.commit,
        dirty=state.dirty,
        pythonpath=tuple(os.path.normpath(folder / part) for part in repo.pythonpath),
        branch=state.branch,
        changes=None if code.unknown else code.changes,
        on_change=repo.changed,
    )
    return RepoSource(
        plan,
        state,
        repo.prove.module if repo.prove else "",
        patch_name(repo.name) if state.diff else "",
    )


def repo_findings(
    repo: Repo, folder: Path, state: GitState, where: str, framework: str = ""
) -> Iterable[Finding]:
    if not is_folder(folder):
        yield _missing_checkout(repo, folder, where, framework)
        return
    if not is_readable(folder):
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
    if repo.url:
        yield from _clone_findings(repo, folder, state, where)
    elif not state.is_checkout:
        yield warning(
            "repo.not-git",
            f"`{folder}` is no git checkout with a commit",
            why="nobody can tell later which code ran",
            fix="commit the code to a git repository",
            path=f"{where}.path",
        )
    elif repo.ref:
        yield from ref_findings(repo, folder, state, where, resolve_ref(folder, repo.ref))
    pointers = lfs_pointers(str(folder)) if state.is_checkout else []
    if pointers:
        yield warning(
            "repo.lfs",
            f"{len(pointers)} file(s) of `{repo.name}` are pointers of Git LFS, such as `{pointers[0]}`",
            why="a clone by `url` and a frozen copy have no content of such files"
            if repo.url or repo.freeze
            else "the run would read the pointer in place of the content",
            fix="if the run reads them, name a `path` in which `git lfs pull` has run, without `freeze`",
            path=where,
        )
    if state.left_out:
        names = ", ".join(f"`{name}`" for name in state.left_out[:5])
        yield warning(
            "repo.left-out",
            f"{len(state.left_out)} changed file(s) of `{repo.name}` are not in its patch: {names}",
            why="they look private, are larger than 2 MiB, or are submodules: a lock cannot bring them back",
            fix="commit them, or keep them out of the run",
            path=where,
        )


def _missing_checkout(repo: Repo, folder: Path, where: str, framework: str) -> Finding:
    if repo.url:
        return warning(
            "repo.not-fetched",
            f"`{repo.name}` is not cloned to `{folder}` yet, so its files were not checked",
            fix="run `jobspec submit`: it clones the repository",
            path=f"{where}.url",
        )
    what = f"`{folder}` {why_not_there(folder)}"
    fix = "correct the path or clone it there; jobspec clones by `url` and `ref`"
    command = "" if os.path.lexists(folder) else clone_command(repo.name, framework, str(folder))
    if command:
        fix = f"run `{command}`, or correct the path; jobspec clones by `url` and `ref`"
    return error("repo.missing", what, fix=fix, path=f"{where}.path")


def clone_command(name: str, framework: str, folder: str) -> str:
    """What makes the checkout of that name in a framework's starting spec; empty for any other."""
    source = (UPSTREAM_OF_RLIX if framework == "rlix" else UPSTREAM).get(name)
    return f"git clone --recurse-submodules {source} {shlex.quote(folder)}" if source else ""


def _clone_findings(repo: Repo, folder: Path, state: GitState, where: str) -> Iterable[Finding]:
    """A clone must still be what its name says: that of this URL, at this commit."""
    wanted = strip_credentials(repo.url or "")
    what = ""
    if state.url != wanted:
        what = f"`{folder}` is no clone of {wanted}" + (f", but of {state.url}" if state.url else "")
    elif not state.commit.startswith(commit_of(folder)):
        what = f"the clone `{folder}` is at {state.commit[:12]}"
    if what:
        yield error(
            "repo.other-clone",
            what,
            why="the run would use other code than the spec says",
            fix="move the folder away; `jobspec submit` clones it again",
            path=f"{where}.url",
        )


def unreadable(path: str, why: str, where: str = "repos") -> Finding:
    """The error about a checkout, or a file in it, that this user may not read."""
    fix = "check its permissions, and those of the folders above it"
    return error("repo.unreadable", f"`{path}` cannot be read", why, fix, path=where)


def ref_findings(repo: Repo, folder: Path, state: GitState, where: str, commit: str) -> Iterable[Finding]:
    """Whether the checkout is at `commit`, which `ref` names in it."""
    if not commit:
        yield error(
            "repo.ref-unknown",
            f"the checkout `{folder}` does not have `{repo.ref}`",
            fix=f"run `git -C {folder} fetch --all --tags`",
            path=f"{where}.ref",
        )
    elif commit != state.commit:
        yield error(
            "repo.ref-mismatch",
            f"`{repo.name}` is at {state.commit[:12]}, the spec wants `{repo.ref}` ({commit[:12]})",
            why="the run would use other code than the spec says",
            fix=f"run `git -C {folder} checkout {repo.ref}`, or change `ref`",
            path=f"{where}.ref",
        )
