"""Checkouts of a lock that are gone, or no longer as its run had them: made again out of what was saved.

A checkout is its commit, of its `origin` and of the bundle beside the patch, with the patch on top. It lies
among the checkouts by URL. `restorable` reads, and `restore` writes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobspec.finding import fail
from jobspec.planning import git_bundle
from jobspec.planning.clones import (
    CLONE_TIMEOUT_S,
    Source,
    cache_below,
    finish_checkout,
    known_commit,
    take,
    update,
)
from jobspec.planning.git_bundle import Sealed
from jobspec.planning.provenance import changed_files, pinned_repos, same_changes
from jobspec.runtime.base import node_lock
from jobspec.runtime.base.safe_write import beside
from jobspec.runtime.checkouts.git import git_state

if TYPE_CHECKING:
    from jobspec.spec.job import Repo
    from jobspec.spec.load import LoadedSpec


@dataclass(frozen=True)
class Restoration:
    """A repository of a lock whose checkout is to be made again as `folder`.

    `why` says what is wrong with the one at `old`, `lacks` why it cannot be made again. `new` is `old` in the
    new checkout.
    """

    name: str
    old: str
    folder: Path
    url: str
    commit: str
    why: str
    bundle: Sealed | None = None
    patch: Sealed | None = None
    modules: Mapping[str, Sealed] = field(default_factory=dict)  # bundles of submodules
    lacks: str = ""
    inside: str = ""

    @property
    def new(self) -> str:
        return str(self.folder / self.inside)

    @property
    def parts(self) -> str:
        """What the checkout is made of."""
        files = [("bundle", self.bundle), ("patch", self.patch)]
        files += [("bundle", sealed) for sealed in self.modules.values()]
        parts = [f"{what} {sealed.path.name}" for what, sealed in files if sealed is not None]
        return " and ".join([self.url or "no remote", *parts]) + f" at {self.commit[:12]}"

    @property
    def patched(self) -> tuple[str, ...]:
        """The files that the patch changes."""
        return tuple(changed_files((self.patch.content() if self.patch else None) or b""))


def restorable(loaded: LoadedSpec, runs: str) -> tuple[Restoration, ...]:
    """The repositories by `path` whose checkout is not as the lock says, of those that it pins."""
    facts = loaded.raw.get("lock")
    pinned = pinned_repos(facts) if isinstance(facts, Mapping) else {}
    found = []
    for repo in loaded.spec.repos:
        if repo.path and repo.name in pinned:
            was = pinned[repo.name]
            why = _unlike(repo.path, was, loaded.path.parent)
            if why:
                found.append(_restoration(repo, was, loaded.path.parent, cache_below(runs), why))
    return tuple(found)


def _unlike(path: str, was: Mapping[str, Any], saved: Path) -> str:
    """Why the checkout is not as it was; empty when it is."""
    if not Path(path).is_dir():
        return f"`{path}` is gone"
    state = git_state(path)
    if state.commit != was["commit"]:
        return f"`{path}` is at {state.commit[:12] or 'no commit'} now"
    return "" if same_changes(was, state, saved) else f"`{path}` has other uncommitted changes now"


def _restoration(repo: Repo, was: Mapping[str, Any], saved: Path, cache: Path, why: str) -> Restoration:
    url, commit, patch_sha = str(was.get("url", "")), str(was["commit"]), str(was.get("patch_sha256", ""))
    bundle, patch = (_sealed(was, what, saved) for what in ("bundle", "patch"))
    digest = hashlib.sha256(f"{url} {patch_sha}".encode()).hexdigest()[:8]
    folder = cache / f"{repo.name}-{commit[:12]}-{digest}"
    rows = was.get("submodules")
    sealed = {
        str(name): _sealed(row, "bundle", saved)
        for name, row in (rows if isinstance(rows, Mapping) else {}).items()
    }
    modules = {name: item for name, item in sealed.items() if item is not None}
    parts = (bundle, patch, *modules.values())
    broken = next((item for item in parts if item is not None and not item.is_whole), None)
    lacks = ""
    if broken is not None and not folder.is_dir():
        lacks = f"`{broken.path}` {'is another file' if broken.path.exists() else 'is not there'}"
    elif not url and bundle is None:
        lacks = "it has no `origin`, and no bundle of its commits was saved"
    inside = str(was.get("inside", ""))
    if inside and os.path.normpath(inside).startswith(("/", "..")):
        lacks = f"`{inside}` is no place in a repository"
    old = repo.path or ""
    return Restoration(repo.name, old, folder, url, commit, why, bundle, patch, modules, lacks, inside)


def _sealed(was: Mapping[str, Any], what: str, saved: Path) -> Sealed | None:
    name, digest = was.get(what), was.get(f"{what}_sha256")
    return Sealed(saved / str(name), str(digest)) if name and digest else None


def restore(item: Restoration) -> None:
    """Make the checkout where it is not there yet. Raises: JobspecError when its parts do not give it."""
    item.folder.parent.mkdir(parents=True, exist_ok=True)
    source = Source(item.url, item.commit, item.name, item.folder.parent)
    with node_lock.hold(f"{source.mirror}.lock", time.monotonic() + CLONE_TIMEOUT_S):
        if not item.folder.is_dir():
            if item.url and not (known_commit(source) or take(source, item.old)):
                update(source, commits=item.bundle is None)
            _make(item, source)
    patch, state = item.patch, git_state(item.folder)
    was = {} if patch is None else {"patch_sha256": patch.sha256, "patch": patch.path.name}
    saved = item.folder if patch is None else patch.path.parent
    if state.commit != item.commit or not same_changes(was, state, saved):
        what = f"`{item.folder}` is not as it was restored"
        raise fail("repo.restore", what, fix="move it away, and repeat the command", path="repos")


def _make(item: Restoration, source: Source) -> None:
    scratch = beside(item.folder)
    try:
        mirror = str(source.mirror.absolute()) if item.url else ""
        git_bundle.restore(mirror, scratch, item.commit, item.bundle, item.patch)
        if item.url:
            finish_checkout(item.url, scratch, item.modules)
        scratch.rename(item.folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
