"""Checkouts of the repositories that a spec names by URL. Writes below `<runs>/.checkouts` alone.

Each URL has one bare mirror, `<name>-<key of its URL>.git`, which one process at a time updates, and only
when it lacks the commit. A checkout, `<name>-<commit>-<key>`, is a clone of the mirror by hard links, so a
container needs no other folder. It stays at its commit: a run keeps its code when a branch moves.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from jobspec.finding import Finding, JobspecError, error, fail, warning
from jobspec.planning.git_bundle import Sealed
from jobspec.runtime.base import node_lock
from jobspec.runtime.base.full_disk import refused
from jobspec.runtime.base.safe_write import beside
from jobspec.runtime.checkouts.git import (
    GIT_TIMEOUT_S,
    REMOTE_PROTOCOLS,
    all_submodules,
    resolve_ref,
    root_of,
    run_git,
    strip_credentials,
)

COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_BEGINNING = re.compile(r"[0-9a-f]{7,40}\Z")
CLONE_TIMEOUT_S = 3600.0
SUBMODULE_PROTOCOLS = "https:ssh:git"  # a stranger's .gitmodules must name no folder of this machine
ASKED = "refs/jobspec/asked"  # what a fetch brought beside branches and tags
_SHOWN = 12  # digits of a commit in a folder's name
# Without gc the commits of a branch that was forced elsewhere stay. The server may be shallow.
FETCH = ("fetch", "--quiet", "--force", "--prune", "--no-tags", "--no-auto-gc", "--update-shallow", "--")
ORIGIN = ("refs/remotes/origin/*:refs/heads/*", "^refs/remotes/origin/HEAD")
BRANCHES = ("refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*")


@dataclass(frozen=True)
class Source:
    """A repository by URL: `ref` of `url`, checked out below `parent` under the spec's `name` for it."""

    url: str
    ref: str
    name: str
    parent: Path

    @property
    def key(self) -> str:
        return hashlib.sha256(self.url.encode()).hexdigest()[:8]

    @property
    def mirror(self) -> Path:
        return self.parent / f"{self.name}-{self.key}.git"

    def folder(self, commit: str) -> Path:
        return self.parent / f"{self.name}-{commit[:_SHOWN]}-{self.key}"


def cache_below(runs: str) -> Path:
    """The folder of this user's mirrors and checkouts: git reads no repository of another user."""
    shared = Path(runs) / ".checkouts"
    try:
        is_own = shared.lstat().st_uid == os.geteuid()
    except OSError:  # not there yet
        is_own = True
    return shared if is_own else shared.with_name(f".checkouts-{os.geteuid()}")


def commit_of(folder: Path) -> str:
    """The first digits of the commit that a checkout is kept at."""
    return folder.name.split("-")[-2]


def known_commit(source: Source) -> str:
    """The commit of `ref` as far as this disk knows; empty where it knows none."""
    if not source.mirror.is_dir():
        return ""
    ref = source.ref
    # A lock's commit may have no branch: then it is there by its own name. A tag goes first, as in git.
    names = [f"refs/tags/{ref}", f"refs/heads/{ref}", f"{ASKED}/{ref}", *([ref] if is_fixed(ref) else [])]
    return next(filter(None, (resolve_ref(source.mirror, name) for name in names)), "")


def is_fixed(ref: str) -> bool:
    """Whether `ref` is a commit, or the beginning of one: these do not move."""
    return bool(_BEGINNING.match(ref))


def asked(source: Source) -> tuple[str, list[Finding]]:
    """The commit that `ref` has at the URL now; where the server does not answer, as far as this disk knows.

    Fetches nothing. The commit is empty where nobody knows it.
    """
    if COMMIT.match(source.ref):
        return source.ref, []
    known = known_commit(source)
    if known and is_fixed(source.ref):
        return known, []
    try:
        commit = _remote_commit(source.url, source.ref)
    except JobspecError as problem:
        return known, [_older(source, known, problem) if known else _silent(source, problem)]
    if commit or is_fixed(source.ref):  # no server says what the beginning of a commit stands for
        return commit, []
    what = f"{strip_credentials(source.url)} has no branch or tag `{source.ref}`"
    return "", [error("repo.ref-unknown", what, fix="correct `ref`, or push it", path="repos")]


def _remote_commit(url: str, ref: str) -> str:
    """The commit that the tag, branch or full ref has at `url` now, or an empty string without one.

    Raises: JobspecError with git's own words when the remote does not answer.
    """
    done = _remote(url, "/", "ls-remote", "--", url, ref, f"{ref}^{{}}", timeout_s=GIT_TIMEOUT_S)
    rows = (line.split("\t", 1) for line in done.stdout.decode(errors="replace").splitlines() if "\t" in line)
    commits = {name: commit for commit, name in rows}
    names = (f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}", f"{ref}^{{}}", ref)
    return next((commits[name] for name in names if name in commits), "")


def fetched(source: Source) -> tuple[Path, list[Finding]]:
    """The checkout at the commit that `ref` names at `url` now; made when it is not there yet.

    When the remote does not answer, the commit of before is taken, and a warning says so.

    Raises: JobspecError with git's own words when a step fails.
    """
    if COMMIT.match(source.ref) and source.folder(source.ref).is_dir():
        return source.folder(source.ref), []
    findings: list[Finding] = []
    source.parent.mkdir(parents=True, exist_ok=True)
    with node_lock.hold(f"{source.mirror}.lock", time.monotonic() + CLONE_TIMEOUT_S):
        commit = known_commit(source)
        if not (commit and is_fixed(source.ref)):
            try:
                update(source)
                commit = known_commit(source)
            except JobspecError as problem:
                commit = known_commit(source)  # none any more where the server has removed the branch
                if not commit:
                    raise
                findings = [_older(source, commit, problem)]
        if not commit:
            raise _failed(source.url, "fetch", f"there is no branch, tag or commit `{source.ref}`")
        folder = source.folder(commit)
        if not folder.is_dir():
            _check_out(source, commit, folder)
    return folder, findings


def update(source: Source, commits: bool = True) -> None:
    """Bring the mirror up to date; who calls holds its lock. A failed first time leaves none.

    With `commits`, a ref of another kind than branch and tag is fetched, too. Raises: as `fetched`.
    """
    mirror, url = source.mirror, source.url
    is_new = not mirror.is_dir()
    try:
        if is_new:
            _remote(url, "/", "init", "--quiet", "--bare", "--", str(mirror.absolute()))
        _remote(url, str(mirror), *FETCH, url, *BRANCHES)
        beside = source.ref == "HEAD" or source.ref.startswith("refs/")
        if commits and (beside or not known_commit(source)):
            # Of another kind: HEAD, refs/pull/1/head, a commit that no branch has any more.
            _remote(url, str(mirror), *FETCH, url, f"{source.ref}:{ASKED}/{source.ref}")
    except BaseException:
        if is_new:
            shutil.rmtree(mirror, ignore_errors=True)
        raise


def take(source: Source, checkout: str) -> bool:
    """Whether `checkout`, one of this user, has given the commit `ref` to the mirror: no server is asked.

    A new mirror has the branches of `origin` as the checkout knows them. Who calls holds its lock.
    """
    mirror = source.mirror
    is_new = not mirror.is_dir()
    try:
        root = root_of(checkout)
        if not root or Path(root).stat().st_uid != os.geteuid() or not resolve_ref(root, source.ref):
            return False
        if is_new:
            _remote(root, "/", "init", "--quiet", "--bare", "--", str(mirror.absolute()))
        words = ("fetch", "--quiet", "--no-tags", "--no-auto-gc", "--", root)
        _remote(root, str(mirror), *words, f"{source.ref}:{ASKED}/{source.ref}", *(ORIGIN if is_new else ()))
    except (JobspecError, OSError):  # a shallow one, for example: the server is asked
        if is_new:
            shutil.rmtree(mirror, ignore_errors=True)
        return False
    return True


def _check_out(source: Source, commit: str, folder: Path) -> None:
    """Clone the mirror to `folder`, at `commit`, with the submodules that it names."""
    scratch = beside(folder)
    url, place = source.url, str(scratch)
    clone = (
        "clone",
        "--quiet",
        "--no-checkout",
        "--",
        str(source.mirror.absolute()),
        str(scratch.absolute()),
    )
    try:
        _remote(url, "/", *clone)  # of a folder: all objects, those that no branch has any more among them
        _remote(url, place, "checkout", "--quiet", "--detach", commit, "--")
        finish_checkout(url, scratch)
        scratch.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another command has made it meanwhile, where no locks are
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def finish_checkout(url: str, folder: Path, bundles: Mapping[str, Sealed] | None = None) -> None:
    """Name the real origin of a clone of a mirror, and fetch the submodules of its commit.

    `bundles` have commits of submodules that no server has: each is fetched once its submodule is cloned.
    """
    _remote(url, str(folder), "remote", "set-url", "origin", url)
    modules = ("submodule", "--quiet", "update", "--init", "--recursive")
    left = dict(bundles or {})
    while True:
        try:
            _remote(url, str(folder), *modules, protocols=SUBMODULE_PROTOCOLS)
            return
        except JobspecError:
            cloned = [name for name in submodules_in(folder, left) if left[name].is_whole]
            if not cloned:
                raise
            for name in cloned:
                bundle = str(left.pop(name).path.absolute())
                words = ("fetch", "--quiet", "--no-tags", "--", bundle, "HEAD")
                _remote(url, str(folder / name), *words)


def submodules_in(folder: Path, names: Iterable[str]) -> list[str]:
    """Those of `names` that are cloned submodules of the checkout; anybody may have written the names."""
    cloned = set(all_submodules(str(folder)))
    return [name for name in names if name in cloned]


def _older(source: Source, commit: str, problem: JobspecError) -> Finding:
    return warning(
        "repo.older-clone",
        f"`{source.name}` is taken from before, at {commit[:_SHOWN]}",
        why=f"nobody knows what `{source.ref}` is now: {problem.findings[0].what}",
        fix=f"make {strip_credentials(source.url)} reachable, or name the commit as `ref`",
        path="repos",
    )


def _silent(source: Source, problem: JobspecError) -> Finding:
    return warning(
        "repo.not-asked",
        f"nobody knows which commit `{source.ref}` of `{source.name}` is",
        why=problem.findings[0].what + (f": {problem.findings[0].why}" if problem.findings[0].why else ""),
        fix=f"make {strip_credentials(source.url)} reachable, or give the checkout's `path`",
        path="repos",
    )


def _remote(
    url: str,
    folder: str,
    *args: str,
    timeout_s: float = CLONE_TIMEOUT_S,
    protocols: str = REMOTE_PROTOCOLS,
) -> subprocess.CompletedProcess[bytes]:
    """A call that may ask `url`. At `/` no configuration of a checkout around the current folder counts.

    Raises: JobspecError with git's own words when it fails.
    """
    done = run_git(folder, args, {"GIT_ALLOW_PROTOCOL": protocols}, timeout_s)
    if done.returncode == 0:
        return done
    raise _failed(
        url, args[0], done.stderr.decode(errors="replace"), args[-1] if args[-1].startswith("/") else folder
    )


def _failed(url: str, verb: str, said: str, place: str = "") -> JobspecError:
    shown = strip_credentials(url)
    full, fix = refused(said, place)
    return fail(
        "repo.checkout",
        f"`git {verb}` failed for {shown}",
        why=(f"{full}: " if full else "") + said.replace(url, shown).strip()[-400:],
        fix=fix or "check the URL, the ref and your access, or give the checkout's `path`",
    )
