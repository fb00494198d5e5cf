"""Clones a repository of a spec: the checkout of a `url` at its `ref`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from jobspec.finding import fail
from jobspec.runtime.checkouts.git import GitState, git_state, run_git, strip_credentials

CLONE_TIMEOUT_S = 3600.0


def checkout(url: str, ref: str, folder: Path, patch: Path | None = None) -> GitState:
    """The state of a clone of `url` in `folder`, at `ref` and with `patch` on top.

    An existing folder is only read.

    Raises: JobspecError with git's own words when a step fails.
    """
    if folder.exists():
        return git_state(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = folder.with_name(f".{folder.name}.{os.getpid()}")
    steps: list[Sequence[str]] = [
        ("clone", "--no-checkout", "--", url, str(scratch)),
        ("-C", str(scratch), "checkout", "--detach", ref or "HEAD", "--"),
        ("-C", str(scratch), "submodule", "update", "--init", "--recursive"),
    ]
    if patch is not None:
        steps.append(("-C", str(scratch), "apply", "--binary", "--whitespace=nowarn", "--", str(patch)))
    try:
        for step in steps:
            _clone_step(step, url)
        scratch.rename(folder)
    except OSError:
        if not folder.exists():  # else another command has cloned it meanwhile
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return git_state(folder)


def _clone_step(step: Sequence[str], url: str) -> None:
    done = run_git(("git", *step), timeout_s=CLONE_TIMEOUT_S)
    if done.returncode != 0:
        raise fail(
            "repo.checkout",
            f"`git {' '.join(step[:3])}` failed for {strip_credentials(url)}",
            why=done.stderr.decode(errors="replace").strip()[-400:],
            fix="check the URL, the ref and your access, or give the checkout's `path`",
        )
