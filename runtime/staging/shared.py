"""Models and data sets on shared storage, before any job: what is there, what is missing, how to get it.

`hfcache` checks a folder here as it does on a node: no node refuses a snapshot that is complete here.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from jobspec.finding import Finding, JobspecError, error, fail
from jobspec.plan import Plan, StagePlan
from jobspec.runtime.base.safe_write import beside
from jobspec.runtime.staging import hfcache, hub
from jobspec.runtime.staging.hub_client import HubClient, Settings
from jobspec.runtime.staging.hub_files import HubFiles, asked_within, list_hub
from jobspec.runtime.staging.listing_checks import check_listing

CHECK_PAUSE_S = 10.0  # somebody waits at a terminal, and a node will wait as long as the hub asks
CHECK_S = 120.0  # all questions about one item


@dataclass(frozen=True)
class Item:
    """One model or data set, and the state of its place on shared storage."""

    plan: StagePlan
    present: bool
    bytes: int = 0
    files: int = 0
    findings: tuple[Finding, ...] = ()

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def kind(self) -> str:
        return self.plan.kind

    @property
    def path(self) -> str:
        return self.plan.source

    @property
    def repo_id(self) -> str:
        return self.plan.repo_id

    @property
    def revision(self) -> str:
        return self.plan.revision

    @property
    def source_name(self) -> str:
        return self.plan.repo_id or self.plan.source

    @property
    def at_hub(self) -> bool:
        """Whether the nodes download it: then nothing is brought to shared storage."""
        return self.plan.from_hub


def inspect(plan: Plan) -> tuple[Item, ...]:
    """The state of everything that the plan stages."""
    return tuple(_inspect(item) for item in plan.stage)


def _inspect(item: StagePlan) -> Item:
    """Complete, or why not. Looks at names, sizes and headers; reads no file further."""
    try:
        if item.from_hub:
            return _at_hub(item)
        listing = hfcache.list_source(item)
        findings = check_listing(listing, item.kind, item.require, item.allow, item.ignore)
    except JobspecError as problem:
        return Item(item, False, findings=tuple(problem.findings))
    except OSError as problem:
        why = f"{problem.strerror}: {problem.filename}"
        return Item(item, False, findings=(error("stage.missing", f"`{item.source}` is not there", why),))
    return _found(item, listing, findings)


def _found(item: StagePlan, listing: hfcache.Listing, findings: tuple[Finding, ...]) -> Item:
    size = sum(entry.size for entry in listing.files)
    complete = not any(finding.is_error for finding in findings)
    return Item(item, complete, size, len(listing.files), findings)


def _at_hub(item: StagePlan) -> Item:
    """What the hub has of an item that nodes download, asked as a node will ask. Raises: JobspecError."""
    settings = replace(Settings.of(os.environ, tries=2), max_pause_s=CHECK_PAUSE_S)
    return asked_within(CHECK_S, settings.endpoint, lambda: _ask_hub(item, settings))


def _ask_hub(item: StagePlan, settings: Settings) -> Item:
    files = HubFiles(HubClient(settings))
    listing = list_hub(files.client, item)
    found = check_listing(listing, item.kind, item.require, item.allow, item.ignore, files.read_text)
    # A gated repository shows its listing to everybody, and a file to nobody else.
    smallest = min(listing.files, key=lambda entry: (not entry.size, entry.size), default=None)
    if smallest is not None:
        stream = files.open(smallest, 0)
        stream.readinto(bytearray(1))
        stream.close()
    place = f"{files.client.settings.endpoint}/{item.repo_id}"
    return _found(replace(item, revision=listing.commit, source=place), listing, found)


def bring(
    item: Item, mirror: Path | None = None, progress: Callable[[int], None] = lambda count: None
) -> None:
    """Put what is missing in its place, from a mirror folder or by downloading.

    Raises: JobspecError when it has no id, the mirror lacks it, or the download fails.
    """
    if not item.repo_id:
        raise fail(
            "stage.by-path",
            f"`{item.path}` is missing, and the spec names it by path",
            why="only what has a Hugging Face id can be fetched",
            fix="copy it there, or name the model by `id`",
        )
    if mirror is not None:
        _copy(item, mirror)
    else:
        _download(item, progress)


def _copy(item: Item, mirror: Path) -> None:
    """Copy a cache folder from a mirror: beside its place first, then one rename."""
    target = Path(item.path)
    places = [mirror / target.name, mirror / "hub" / target.name]
    source = next((place for place in places if place.is_dir()), None)
    if source is None:
        raise fail(
            "stage.mirror",
            f"the mirror `{mirror}` has no `{item.repo_id}`",
            why="looked for " + " and ".join(f"`{place}`" for place in places),
            fix="name a Hugging Face cache folder that holds it",
        )
    _check_space(item, source, target)
    partial, replaced = beside(target), beside(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, partial, symlinks=True)
        if target.exists():
            target.rename(replaced)
        partial.rename(target)
    except OSError as problem:
        if _inspect(item.plan).present:  # another command has brought it meanwhile
            return
        raise fail(
            "stage.copy",
            f"`{item.repo_id}` could not be copied to `{target}`",
            why=str(problem),
            fix="check space and permissions there",
        ) from problem
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


def _check_space(item: Item, source: Path, target: Path) -> None:
    """Raises: JobspecError where a copy of `source` does not fit beside what is there."""
    needed = sum(path.lstat().st_size for path in source.rglob("*") if not path.is_dir())
    there = next(folder for folder in target.absolute().parents if folder.is_dir())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise fail(
            "stage.space",
            f"`{item.repo_id}` needs {needed / 2**30:.2f} GiB, {free / 2**30:.2f} GiB are free",
            why=f"on the file system of `{there}`",
            fix="free space there, or choose another `hf_cache.home`",
        )


def _download(item: Item, progress: Callable[[int], None]) -> None:
    plan = item.plan
    cache = str(Path(plan.source).parent)
    present = hub.on_disk(hub.Download(plan.repo_id, plan.kind, plan.revision, cache))
    what = hub.Download(plan.repo_id, plan.kind, plan.revision, cache, plan.allow, plan.ignore, present)
    hub.download(what, progress)
