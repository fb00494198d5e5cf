"""What a lock of somebody else does, shown and confirmed before anything is fetched or started."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.finding import fail, visible
from jobspec.plan import HUB_TOKEN
from jobspec.runs.owner import owner
from jobspec.runs.paths import RunPaths
from jobspec.runs.store import known_folders

if TYPE_CHECKING:
    from jobspec.planning.resolve import Resolved
    from jobspec.spec.containers import Container


def is_own(lock: Path) -> bool:
    """Whether a run that this user has started wrote `lock`: it lies in a folder that received one."""
    folder = lock.absolute().parent
    if folder.parent.name == "points":
        folder = folder.parent.parent
    run = RunPaths(folder)
    if not run.standard or not run.state.is_file() or owner(lock) or owner(folder):
        return False
    return folder.parent.parent.resolve() in {known.resolve() for known in known_folders(os.environ)}


def confirm(
    lock: Path, text: bytes, resolved: Resolved, yes: bool, first: Iterable[tuple[str, str]] = ()
) -> None:
    """Show what the lock with this `text` does, `first` before all, and ask for consent; `yes` answers.

    Raises: JobspecError without consent, or when the file has changed while its user read.
    """
    print(f"{lock} was not written by a run of yours. It", file=sys.stderr)
    for verb, deed in (*first, *_deeds(resolved)):
        line, *more = [visible(line) for line in deed.splitlines()] or [""]
        print(f"  {verb:8}  {line}", file=sys.stderr)
        for line in more:
            print(f"  {'':8}  {line}", file=sys.stderr)
    if not (yes or _agreed()):
        raise fail(
            "reproduce.not-confirmed",
            f"`{lock}` is not yours, and nobody has confirmed it",
            why="its commands would run as you, with the secrets that it names",
            fix="read what it does, then add `--yes`",
        )
    if lock.read_bytes() != text:
        what = f"`{lock}` has changed since it was shown"
        raise fail(
            "reproduce.not-confirmed", what, fix="copy it to a folder of your own, and repeat the command"
        )


def _agreed() -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print("Run this? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _deeds(resolved: Resolved) -> Iterator[tuple[str, str]]:
    """Each thing that the lock runs, fetches, mounts, sets or asks for, as a verb and a text."""
    spec, plan = resolved.spec, resolved.plan
    for repo in resolved.repos:
        of_spec = next(item for item in spec.repos if item.name == repo.plan.name)
        at = f"{of_spec.ref or 'any commit'}{', with uncommitted changes' if repo.plan.dirty else ''}"
        verb, place = ("fetches", of_spec.url) if of_spec.url else ("imports", repo.plan.path)
        yield verb, f"{place} at {at}"
    for line in resolved.hooks:
        yield "runs", f"{line}   (of your site profile)"
    if plan is None:  # its checkouts are not here yet
        yield "runs", shlex.join(spec.train.command or [f"what framework `{spec.framework}` makes of it"])
    for command in () if plan is None else (*plan.checks, *plan.commands):
        yield "runs", command.argv[0] if command.shell else shlex.join(command.argv)
    for service in spec.services:
        yield "runs", service.command[0] if service.shell else shlex.join(service.command)
    settings = [spec.train.overrides, *(pipeline.train.overrides for pipeline in spec.pipelines)]
    for overrides in filter(None, settings):
        yield "passes", json.dumps(overrides, default=str)
    if spec.sweep is not None:
        yield "varies", json.dumps({**spec.sweep.grid, "list": spec.sweep.points}, default=str)
    for _, container in spec.containers:
        yield from _container(container)
    for name in spec.secrets:
        yield "gets", f"the secret {name}"
    ways = {item.stage for item in spec.data} | ({spec.model.stage} if spec.model is not None else set())
    if "hub" in ways and HUB_TOKEN not in spec.secrets:
        yield "gets", f"the secret {HUB_TOKEN} of your shell, while nodes download from the hub"
    for item in () if plan is None else plan.stage:
        yield "reads", f"{item.repo_id or item.source} {item.revision}".rstrip()
    if plan is not None and plan.checkpoint_dir:
        yield "writes", plan.checkpoint_dir
    yield "uses", f"{spec.resources.nodes} node(s) of {resolved.cluster.profile.name}"


def _container(container: Container) -> Iterator[tuple[str, str]]:
    if container.python:
        yield "runs", f"{container.python}   (the Python of jobspec's runtime)"
    if container.image:
        yield "runs in", f"image {container.image}"
    for mount in container.mounts:
        yield "mounts", f"{mount.source} at {mount.target}{', read-only' if mount.read_only else ''}"
    for name, value in container.env.items():
        yield "sets", f"{name}={value}"
