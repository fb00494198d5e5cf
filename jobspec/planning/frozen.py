"""Copies of checkouts for `repos[].freeze`: what a run uses stays as it was when it was submitted.

A copy lies in `<runs>/.frozen`, named by its content: all points and runs of the same code share one. Its
objects are hard links where the file system allows them. Files that git ignores are not in it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from jobspec.finding import JobspecError, fail
from jobspec.runtime.base.full_disk import refusal, refused
from jobspec.runtime.base.safe_write import beside
from jobspec.runtime.checkouts.code_state import CodeState, unlike
from jobspec.runtime.checkouts.git import GitState, git_state, root_of, run_git, submodules

COPY_TIMEOUT_S = 1800.0
UNUSED_FOR_S = 24 * 3600.0  # a copy without a run may belong to a command that is about to write one
USERS = ".users"  # beside the copy: the run directories that use it, one a line


def freeze(name: str, state: GitState, code: CodeState, runs: str) -> tuple[Path, Path]:
    """The frozen copy of the checkout that has `state.path`, made where there is none, and that path in it.

    Raises: JobspecError when the checkout cannot be copied, or changes meanwhile.
    """
    if not state.is_checkout or code.unknown:
        raise _fail(name, code.unknown or "it has no commit", "commit the code to a git repository")
    root = root_of(state.path)
    digest = hashlib.sha256(f"{state.diff_sha256} {code.changes_sha256}".encode()).hexdigest()
    target = Path(runs) / ".frozen" / f"{name}-{state.commit[:12]}-{digest[:12]}"
    scratch = beside(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            _must_be_like(name, code, target, f"remove `{target}` once no run uses it: one has changed it")
        else:
            _copy(name, Path(root), scratch)
            fix = "commit these files or let git ignore them; if they changed just now, submit again"
            _must_be_like(name, code, scratch, fix)
            scratch.rename(target)
        os.utime(target)  # it is in use: see `_drop_unused`
    except OSError as problem:
        if not target.is_dir():  # else another command has made it meanwhile
            why, fix = refusal(problem, target)
            why = f"`{problem.filename or target}`: {why}"
            raise _fail(name, why, fix or "check `paths.runs`: the copy lies there") from problem
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target, Path(os.path.normpath(target / os.path.relpath(os.path.realpath(state.path), root)))


def keep(copies: Iterable[Path | None], run_dir: Path) -> None:
    """Note that `run_dir` uses these copies, which stay as long as it exists; unused ones beside them go."""
    known = {copy for copy in copies if copy is not None}
    for copy in sorted(known):
        with copy.with_name(copy.name + USERS).open("a") as users:
            users.write(f"{run_dir}\n")
    for folder in {copy.parent for copy in known}:
        _drop_unused(folder)


def _drop_unused(folder: Path) -> None:
    """Remove the copies in `folder` of which every run is gone."""
    for users in sorted(folder.glob(f"*{USERS}")):
        copy = users.with_name(users.name.removesuffix(USERS))
        try:
            used = any(Path(line).is_dir() for line in users.read_text().splitlines())
            if used or time.time() - copy.stat().st_mtime < UNUSED_FOR_S:
                continue
        except OSError:  # another command removes it, or it is somebody else's
            continue
        shutil.rmtree(copy, ignore_errors=True)
        users.unlink(missing_ok=True)


def _copy(name: str, source: Path, target: Path) -> None:
    """A clone of `source` at its commit, with its uncommitted changes and its submodules."""
    state = git_state(source)
    _git(
        name,
        "/",
        "clone",
        "--quiet",
        "--no-checkout",
        "--",
        str(source.absolute()),
        str(target.absolute()),
    )
    _git(name, target, "checkout", "--quiet", "--detach", state.commit, "--")
    inner = submodules(str(source))
    for folder in inner:
        _copy(name, source / folder, target / folder)
    if state.diff:
        patch = target.with_name(f"{target.name}.diff")
        patch.write_bytes(state.diff)
        try:
            left = [f"--exclude={folder}" for folder in inner]
            words = ("apply", "--binary", "--whitespace=nowarn", *left, "--", str(patch))
            _git(name, target, *words)
        finally:
            patch.unlink()


def _must_be_like(name: str, code: CodeState, copy: Path, fix: str) -> None:
    """Raises: JobspecError when the copy is not as `code` says, apart from private files, which it lacks."""
    other = unlike(code.commit, code.changes, str(copy))
    if other:
        raise _fail(name, f"its copy is not like the checkout: {other}", fix)


def _git(name: str, folder: Path | str, *words: str) -> None:
    done = run_git(str(folder), words, {"GIT_ALLOW_PROTOCOL": "file"}, COPY_TIMEOUT_S)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()[-400:]
        full, fix = refused(said, words[-1] if words[-1].startswith("/") else folder)
        why = f"{full}: {said}" if full else said
        raise _fail(name, why, fix or "repair the checkout, or run without `freeze`")


def _fail(name: str, why: str, fix: str) -> JobspecError:
    return fail("repo.freeze", f"`{name}` cannot be frozen", why, fix, path="repos")
