"""Clones of the repositories that a spec names by URL. Writes below `<runs>/.checkouts` alone.

A clone is `<name>-<commit>-<key of its URL>`, and stays at its commit: a run keeps its code when a branch
moves, and two URLs never share a folder.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from jobspec.finding import Finding, JobspecError, fail, warning
from jobspec.runtime.checkouts.git import GIT_TIMEOUT_S, resolve_ref, run_git, strip_credentials

_COMMIT = re.compile(r"[0-9a-f]{7,40}\Z")
CLONE_TIMEOUT_S = 3600.0
REMOTE_PROTOCOLS = "https:ssh:git:file"
SUBMODULE_PROTOCOLS = "https:ssh:git"  # a stranger's .gitmodules must name no folder of this machine
_SHOWN = 12  # digits of a commit in a folder's name


@dataclass(frozen=True)
class Source:
    """A repository by URL: `ref` of `url`, cloned below `parent` under the spec's `name` for it."""

    url: str
    ref: str
    name: str
    parent: Path

    def folder(self, commit: str) -> Path:
        key = hashlib.sha256(self.url.encode()).hexdigest()[:8]
        return self.parent / f"{self.name}-{commit[:_SHOWN]}-{key}"


def commit_of(folder: Path) -> str:
    """The first digits of the commit that a clone is kept at."""
    return folder.name.split("-")[-2]


def known_clone(source: Source) -> Path | None:
    """The newest clone of `source` that is at its `ref`, as far as this disk knows."""
    pattern = source.folder("?" * _SHOWN).name
    pattern = glob.escape(source.name) + pattern[len(source.name) :]
    found = sorted(source.parent.glob(pattern), key=lambda path: path.stat().st_mtime, reverse=True)
    return next((folder for folder in found if _is_at(folder, source.ref)), None)


def _is_at(folder: Path, ref: str) -> bool:
    names = (f"refs/tags/{ref}", f"refs/remotes/origin/{ref}")
    return _begins(folder, ref) or any(
        resolve_ref(folder, name).startswith(commit_of(folder)) for name in names
    )


def _begins(folder: Path, ref: str) -> bool:
    """Whether `ref` is the commit of a clone, or the beginning of it."""
    return bool(_COMMIT.match(ref)) and commit_of(folder).startswith(ref[:_SHOWN])


def fetched(source: Source) -> tuple[Path, list[Finding]]:
    """The clone at the commit that `ref` names at `url` now; made when it is not there yet.

    When the remote does not answer, a clone from before is taken, and a warning says so.

    Raises: JobspecError with git's own words when a step fails.
    """
    known = known_clone(source)
    if known is not None and _begins(known, source.ref):  # a commit does not move
        return known, []
    is_whole = len(source.ref) == 40 and _COMMIT.match(source.ref)
    try:
        commit = source.ref if is_whole else _remote_commit(source.url, source.ref)
    except JobspecError as problem:
        if known is None:
            raise
        return known, [_older(source, known, problem)]
    # The remote has no name for an abbreviated commit.
    known = source.folder(commit) if commit else None
    if known is None or not known.is_dir():
        known = _clone(source, commit or source.ref)
    return known, []


def _clone(source: Source, ref: str) -> Path:
    source.parent.mkdir(parents=True, exist_ok=True)
    scratch = source.parent / f".{source.name}.{os.getpid()}"
    try:
        folder = source.folder(_clone_at(source.url, ref, scratch))
        try:
            scratch.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another command has cloned it meanwhile
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _older(source: Source, folder: Path, problem: JobspecError) -> Finding:
    return warning(
        "repo.older-clone",
        f"the clone of `{source.name}` from before is taken, at {commit_of(folder)}",
        why=f"nobody knows what `{source.ref}` is now: {problem.findings[0].what}",
        fix=f"make {strip_credentials(source.url)} reachable, or name the commit as `ref`",
        path="repos",
    )


def _remote_commit(url: str, ref: str) -> str:
    """The commit that the tag or branch `ref` has at `url` now, or an empty string without one.

    Raises: JobspecError with git's own words when the remote does not answer.
    """
    done = _remote(url, "/", "ls-remote", "--", url, ref, f"{ref}^{{}}", timeout_s=GIT_TIMEOUT_S)
    rows = (line.split("\t", 1) for line in done.stdout.decode(errors="replace").splitlines() if "\t" in line)
    commits = {name: commit for commit, name in rows}
    names = (f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}", ref)
    return next((commits[name] for name in names if name in commits), "")


def _clone_at(url: str, ref: str, folder: Path) -> str:
    """Clone `url` to `folder`, which does not exist yet, with `ref` checked out; returns its commit.

    Raises: JobspecError with git's own words when a step fails.
    """
    # At `/` no configuration of a checkout around the current folder counts.
    _remote(url, "/", "clone", "--no-checkout", "--origin=origin", "--", url, str(folder.absolute()))
    commit = resolve_ref(folder, ref)
    _remote(url, str(folder), "checkout", "--detach", commit or f"refs/{ref}", "--")
    modules = ("submodule", "update", "--init", "--recursive")
    _remote(url, str(folder), *modules, protocols=SUBMODULE_PROTOCOLS)
    return commit


def _remote(
    url: str,
    folder: str,
    *args: str,
    timeout_s: float = CLONE_TIMEOUT_S,
    protocols: str = REMOTE_PROTOCOLS,
) -> subprocess.CompletedProcess[bytes]:
    """A call that may ask `url`. Raises: JobspecError with git's own words when it fails."""
    done = run_git(folder, args, {"GIT_ALLOW_PROTOCOL": protocols}, timeout_s)
    if done.returncode == 0:
        return done
    shown = strip_credentials(url)
    raise fail(
        "repo.checkout",
        f"`git {args[0]}` failed for {shown}",
        why=done.stderr.decode(errors="replace").replace(url, shown).strip()[-400:],
        fix="check the URL, the ref and your access, or give the checkout's `path`",
    )
