"""Commits that only a checkout has, as a file; and a checkout made of a remote, that file and a patch.

Runs on Python 3.9 with the standard library: it also travels to a cluster's login node.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from jobspec.finding import JobspecError, fail
from jobspec.runtime.base.safe_write import beside
from jobspec.runtime.checkouts.git import (
    REMOTE_PROTOCOLS,
    git_in,
    resolve_ref,
    root_of,
    run_git,
    strip_credentials,
)

MAX_BUNDLE_BYTES = 512 * 1024**2
BUNDLE_TIMEOUT_S = 1800.0
ORIGIN_HAS = ("--not", "--remotes=origin")  # what the remote had when it was last asked


@dataclass(frozen=True)
class Sealed:
    """A file, and the SHA-256 that it has or must have."""

    path: Path
    sha256: str

    @property
    def is_whole(self) -> bool:
        return self.path.is_file() and file_sha256(self.path) == self.sha256

    def content(self) -> bytes | None:
        """Its bytes, if they are those that were sealed: the file itself may change right after."""
        content = self.path.read_bytes() if self.path.is_file() else b""
        return content if hashlib.sha256(content).hexdigest() == self.sha256 else None


def file_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def unpushed(checkout: Path | str, known: Iterable[str] | None = None) -> tuple[str, ...]:
    """The commits below HEAD that `origin` lacks, newest first, by what git here knows of it.

    With `known`, those that the commits of this list do not lead to. Commits that are not here do not count.
    """
    done = git_in(str(checkout), "rev-list", "HEAD", *_without(checkout, known))
    return tuple(done.stdout.decode().split()) if done.returncode == 0 else ()


def write_bundle(
    checkout: Path | str,
    target: Path,
    known: Iterable[str] | None = None,
    limit: int = MAX_BUNDLE_BYTES,
) -> Sealed | None:
    """`unpushed` as a git bundle in the new file `target`; None, and no file, where there is none.

    Raises: JobspecError when git cannot write it, or it has more than `limit` bytes.
    """
    left_out = _without(checkout, known)
    commits = unpushed(checkout, known)
    if not commits:
        return None
    # What helps without a bundle. One with `known` goes to a cluster, which asks no remote.
    other = "push its commits" if known is None else "put a checkout on the cluster"
    _refuse_shallow(checkout, commits, f"run `git fetch --unshallow` in it, or {other}")
    part = beside(target)
    try:
        words = ("bundle", "create", "--quiet", str(part.absolute()), "HEAD", *left_out)
        done = run_git(str(checkout), words, {"GIT_ALLOW_PROTOCOL": ""}, BUNDLE_TIMEOUT_S)
        if done.returncode != 0:
            raise _fail(checkout, _last_words(done.stderr), f"repair the checkout, or {other}")
        if part.stat().st_size > limit:
            why = f"its {len(commits)} commits take {part.stat().st_size} bytes, and {limit} are allowed"
            raise _fail(checkout, why, other)
        part.rename(target)
    finally:
        part.unlink(missing_ok=True)
    return Sealed(target, file_sha256(target))


def restore(
    remote: str,
    target: Path,
    commit: str,
    bundle: Sealed | None = None,
    patch: Sealed | None = None,
) -> None:
    """Make the checkout `target`: `commit`, out of `remote` and `bundle`, with `patch` on top.

    `remote` is a URL, a folder (a mirror, for one), or empty where the bundle has the whole history.
    Submodules stay empty, and the patch's lines about them are left out. `target` appears in one step.

    Raises: JobspecError when a file is not as it was sealed, git fails, or the commit is in neither.
    """
    if bundle is not None and not bundle.is_whole:  # from here on git's own hashes guard it
        raise _other_file(bundle)
    changes = None if patch is None else patch.content()
    if patch is not None and changes is None:
        raise _other_file(patch)
    scratch = beside(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _fill(remote, scratch, commit, bundle)
        if changes is not None:
            _apply(scratch, changes)
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _fill(remote: str, folder: Path, commit: str, bundle: Sealed | None) -> None:
    """A clone at `commit`, without its history's origin where there is none."""
    where = str(folder.absolute())
    if remote:
        _git("/", "clone", "--quiet", "--no-checkout", "--origin=origin", "--", remote, where)
    else:
        _git("/", "init", "--quiet", "--", where)
    if bundle is not None:
        _git(where, "fetch", "--quiet", "--no-tags", "--", str(bundle.path.absolute()), "HEAD")
    if resolve_ref(where, commit) != commit:
        places = " and the bundle" if bundle else ""
        what = (
            f"commit {commit} is not in {strip_credentials(remote) or 'the bundle'}{places if remote else ''}"
        )
        raise fail("repo.restore", what, fix="push the commit, or take a bundle that has it")
    _git(where, "checkout", "--quiet", "--detach", commit, "--")


def _other_file(sealed: Sealed) -> JobspecError:
    why = f"its SHA-256 is not {sealed.sha256}" if sealed.path.is_file() else "it is not there"
    return fail("repo.restore", f"`{sealed.path}` is not the file that was written", why, "copy it again")


def _apply(folder: Path, changes: bytes) -> None:
    listed = git_in(str(folder), "ls-files", "--stage", "-z").stdout.decode(errors="surrogateescape")
    modules = [row.partition("\t")[2] for row in listed.split("\0") if row.startswith("160000 ")]
    left_out = [f"--exclude={name}" for name in modules]
    patch = folder.absolute() / ".git/restored.diff"
    patch.write_bytes(changes)
    _git(str(folder), "apply", "--binary", "--whitespace=nowarn", *left_out, "--", str(patch))
    patch.unlink()


def _without(checkout: Path | str, known: Iterable[str] | None) -> tuple[str, ...]:
    if known is None:
        return ORIGIN_HAS
    here = [commit for commit in known if resolve_ref(checkout, commit)]
    return ("--not", *here) if here else ()


def _refuse_shallow(checkout: Path | str, commits: Iterable[str], fix: str) -> None:
    """A bundle that ends where a shallow clone ends lacks commits that nobody else can give."""
    place = (
        Path(root_of(str(checkout)))
        / git_in(str(checkout), "rev-parse", "--git-path", "shallow").stdout.decode().strip()
    )
    ends = set(place.read_text().split()) if place.is_file() else set()
    if ends.intersection(commits):
        raise _fail(checkout, "it is a shallow clone, and lacks the history below these commits", fix)


def _git(folder: str, *words: str) -> None:
    done = run_git(folder, words, {"GIT_ALLOW_PROTOCOL": REMOTE_PROTOCOLS}, BUNDLE_TIMEOUT_S)
    if done.returncode != 0:
        what = f"`git {words[0]}` failed"
        raise fail("repo.restore", what, _last_words(done.stderr), "check the remote and your access to it")


def _last_words(stderr: bytes) -> str:
    return stderr.decode(errors="replace").strip()[-400:]


def _fail(checkout: Path | str, why: str, fix: str) -> JobspecError:
    return fail("repo.bundle", f"the commits of `{checkout}` cannot be saved", why, fix, path="repos")
