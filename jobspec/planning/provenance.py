"""Where a run's inputs came from: digests of images and models, and what has changed since a lock.

Reads files and checkouts; writes nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from jobspec.finding import Finding, error, warning
from jobspec.plan import NOT_PINNED
from jobspec.planning.clones import COMMIT
from jobspec.planning.digests import file_digest
from jobspec.runtime.checkouts.code_state import TAKEN

if TYPE_CHECKING:
    from jobspec.plan import ContainerPlan, Plan, RepoPlan, StagePlan
    from jobspec.runtime.checkouts.git import GitState
    from jobspec.spec.job import JobSpec
    from jobspec.spec.load import LoadedSpec
    from jobspec.spec.site import ClusterProfile


class CheckedOut(Protocol):
    """A repository as `jobspec.planning.repos` reads it."""

    @property
    def plan(self) -> RepoPlan: ...
    @property
    def state(self) -> GitState: ...


class Site(Protocol):
    @property
    def profile(self) -> ClusterProfile: ...


class Now(Protocol):
    """A lock as `jobspec.planning.resolve`, above this module, resolves it now."""

    @property
    def plan(self) -> Plan | None: ...
    @property
    def spec(self) -> JobSpec: ...
    @property
    def repos(self) -> Sequence[CheckedOut]: ...
    @property
    def cluster(self) -> Site: ...
    @property
    def loaded(self) -> LoadedSpec: ...


def patch_name(repo: str) -> str:
    """The patch file's name for a repository; spec names are file-name safe already."""
    return f"patches/{repo}.diff"


def bundle_name(repo: str, module: str = "") -> str:
    """The file's name for the commits of a repository, or of a submodule of it, that its `origin` lacks."""
    inner = "+" + re.sub(r"[^\w.-]", "+", module) if module else ""
    return f"patches/{repo}{inner}.bundle"


def image_digest(image: str) -> str:
    """The digest of a container image, or an empty string where it cannot be known from here."""
    pinned = re.search(r"@(sha256:[0-9a-f]{64})$", image)
    if pinned:
        return pinned.group(1)
    return file_digest(image) if image.startswith("/") else ""


def profile_digest(profile: ClusterProfile) -> str:
    """The digest of a site profile's values; comments and order of its file do not matter.

    Paths are left out: they name the user and the folder that a run was submitted from.
    """
    values = msgspec.to_builtins(profile)
    values.pop("paths", None)
    return hashlib.sha256(msgspec.json.encode(values, order="sorted")).hexdigest()


def same_changes(was: Mapping[str, Any], now: GitState, saved: Path) -> bool:
    """Whether a checkout's uncommitted changes are those of the lock, whose patch lies below `saved`.

    A file that is new since then counts where an import could take it: a run writes its outputs.
    """
    wanted = str(was.get("patch_sha256", ""))
    if now.diff_sha256 == wanted:
        return True
    file = saved / str(was.get("patch", ""))
    patch = file.read_bytes() if wanted and file.is_file() else b""
    if wanted and hashlib.sha256(patch).hexdigest() != wanted:
        return False
    before, after = changed_files(patch), changed_files(now.diff)
    return all(before.get(name) == text or _is_output(name, text) for name, text in after.items()) and (
        before.keys() <= after.keys()
    )


def changed_files(patch: bytes) -> dict[str, bytes]:
    """The part of a patch about each file, by its names there: only its head begins a line like this.

    The text behind a hunk's numbers is left out: it depends on the user's attributes.
    """
    patch = re.sub(rb"^(@@ -[0-9,]+ \+[0-9,]+ @@).*$", rb"\1", patch, flags=re.MULTILINE)
    parts = re.split(rb"^diff --git ", patch, flags=re.MULTILINE)[1:]
    return {part.split(b"\n", 1)[0].decode(errors="surrogateescape"): part for part in parts}


def _is_output(name: str, change: bytes) -> bool:
    is_new = change.split(b"\n", 2)[1].startswith(b"new file mode")
    return is_new and not name.rstrip('"').endswith(TAKEN)


def changed_since(lock: Mapping[str, Any], now: Now, restored: Collection[str] = ()) -> tuple[Finding, ...]:
    """The differences between a lock's `lock` section and what the same lock resolves to now.

    Errors are differences in what runs (code, image, model). Warnings are differences around it. What the
    lock does not pin is a difference, too: nobody knows what it was. The checkouts of `restored` are made
    again before the run.
    """
    findings = [*_changed_around(lock, now), *_unpinned(lock, now)]
    if now.plan is not None:
        for at, section, container in _image_locks(lock, now.plan):
            changed = _changed_image(*_images(section, container))
            findings += [replace(item, path=f"{at}{item.path}") for item in changed]
        findings += [finding for item in now.plan.stage for finding in _snapshot_is_there(item)]
    repos = {repo.plan.name: repo for repo in now.repos}
    for name, was in pinned_repos(lock).items():
        to_fetch = any(
            repo.name == name and repo.url and repo.ref == was["commit"] for repo in now.spec.repos
        )
        if to_fetch and name in repos and not repos[name].state.commit:
            continue  # `submit` clones this very commit
        if name not in restored:
            findings += _changed_repo(name, was, repos.get(name), now.loaded.path.parent)
    return tuple(findings)


def pinned_repos(lock: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The repositories that a lock pins to a commit. Anybody may have written it."""
    repos = lock.get("repos")
    entries = repos.items() if isinstance(repos, Mapping) else ()
    pinned = {name: was for name, was in entries if isinstance(was, Mapping)}
    return {name: was for name, was in pinned.items() if COMMIT.match(str(was.get("commit")))}


def _unpinned(lock: Mapping[str, Any], now: Now) -> Iterator[Finding]:
    pinned = pinned_repos(lock)
    for repo in now.spec.repos:
        commit = pinned.get(repo.name, {}).get("commit", "")
        if not commit:
            yield _not_pinned(
                f"the commit of repo `{repo.name}`", f"`lock.repos.{repo.name}.commit`", "repos"
            )
        elif repo.url and repo.ref != commit:
            yield _not_pinned(f"repo `{repo.name}`, at `{repo.ref}`,", f"`ref: {commit}`", "repos")
    model = now.spec.model
    if model is not None and model.id and not model.revision:
        yield _not_pinned(f"model `{model.id}`", "`model.revision`", "model")
    staged = (
        {} if now.plan is None else {item.name: item for item in now.plan.stage if item.kind == "dataset"}
    )
    for data in now.spec.data:
        if data.name in staged and staged[data.name].repo_id == data.source and not data.revision:
            yield _not_pinned(f"data set `{data.source}`", "its `revision`", "data")
    for at, section, container in () if now.plan is None else _image_locks(lock, now.plan):
        image = container.image
        if image and not section.get("image"):
            pin = "its digest below `lock`" if at else "`lock.image`"
            pin = pin if image.startswith("/") else "`@sha256:…` in its name"
            yield _not_pinned(f"image `{image}`", pin, f"{at}container.image", is_error=False)


def _not_pinned(what: str, pin: str, path: str, is_error: bool = True) -> Finding:
    return (error if is_error else warning)(
        "reproduce.unpinned",
        f"the lock does not pin {what}",
        why=f"it lacks {pin}: nobody can tell whether it is what the run had",
        fix="use the lock as the run wrote it, or allow the difference",
        path=path,
    )


def _image_locks(
    lock: Mapping[str, Any], plan: Plan
) -> Iterator[tuple[str, Mapping[str, Any], ContainerPlan]]:
    """For each container of the plan: the path before its section of a spec, the lock's word, itself."""
    yield "", lock, plan.container
    told = lock.get("services")
    for index, service in enumerate(plan.services):
        section = told.get(service.name) if isinstance(told, Mapping) else None
        if service.container is not None:
            at = f"services[{index}]."
            yield at, section if isinstance(section, Mapping) else {}, service.container


def _images(lock: Mapping[str, Any], now: ContainerPlan) -> tuple[str, ContainerPlan]:
    """The lock's image and that of now; of another import than the lock's, as the registry names both."""
    kept = lock.get("cached_image")
    if not isinstance(kept, Mapping) or kept.get("file") == now.image:
        return str(lock.get("image") or ""), now
    digest = now.cached.digest if now.cached else now.digest
    return str(kept.get("digest") or ""), replace(now, digest=digest)


def _changed_image(was: str, now: ContainerPlan) -> Iterator[Finding]:
    if was == NOT_PINNED:
        yield warning(
            "reproduce.image",
            f"nobody can tell whether `{now.image}` is the image of the run",
            why="the run named it by a tag, and a tag may mean another image now",
            fix="name an image file, or a digest (`@sha256:…`)",
            path="container.image",
        )
    elif was and not now.digest and not now.image.startswith("/"):
        yield warning(
            "reproduce.image",
            f"nobody was asked whether `{now.image}` is still the image of the run",
            why=f"its tag was {was} then",
            fix="`jobspec submit` asks the registry; or name the digest (`@sha256:…`)",
            path="container.image",
        )
    elif was and now.digest != was:
        yield error(
            "reproduce.image",
            f"the image `{now.image}` is {'another one now' if now.digest else 'gone'}",
            why=f"it was {was}, and is {now.digest or 'not there'}",
            fix="restore the image, or allow the difference",
            path="container.image",
        )


def _changed_around(lock: Mapping[str, Any], now: Now) -> Iterator[Finding]:
    from jobspec import __version__

    if lock.get("jobspec") != __version__:
        yield warning(
            "reproduce.jobspec",
            f"jobspec is {__version__} now, the run was made by {lock.get('jobspec', 'another version')}",
            why="scripts and runtime may differ",
            fix=f"pip install jobspec-rl=={lock.get('jobspec')}, or compare the rendered files",
        )
    if lock.get("cluster_sha256") != profile_digest(now.cluster.profile):
        here, there = now.cluster.profile.name, now.spec.cluster
        yield warning(
            "reproduce.cluster",
            f"the site profile `{here}` has changed since the run"
            if there in (here, None)
            else f"the run was made on `{there}`, and this is `{here}`",
            why="its values decide about paths, network and scheduler options",
            fix="compare the two plan.json files",
        )


def _changed_repo(
    name: str, was: Mapping[str, Any], now: CheckedOut | None, saved: Path
) -> Iterator[Finding]:
    if now is None or not now.state.commit:
        what = f"the checkout of `{name}` is gone"
        fix = f"git clone {was.get('url') or 'URL'}, then check out {was.get('commit')}"
        yield error("reproduce.repo", what, fix=fix, path="repos")
        return
    if now.state.commit != was.get("commit"):
        yield error(
            "reproduce.repo",
            f"`{name}` is at {now.state.commit[:12]} now, the run used {str(was.get('commit'))[:12]}",
            fix=f"git -C {now.plan.path} checkout {was.get('commit')}",
            path="repos",
        )
    if not same_changes(was, now.state, saved):
        patch = was.get("patch")
        yield error(
            "reproduce.patch",
            f"the uncommitted changes of `{name}` are not those of the run",
            why=f"the run's are saved in `{patch}`" if patch else "the run had none",
            fix=f"git -C {now.plan.path} stash -u" + (f", then git apply {patch}" if patch else ""),
            path="repos",
        )
    listed = was.get("left_out")
    unsaved = [str(file) for file in listed] if isinstance(listed, list) else []
    unsaved += [file for file in now.state.left_out if file.endswith(TAKEN) and file not in unsaved]
    if unsaved:
        yield warning(
            "reproduce.left-out",
            f"`{name}` had changed files that no patch holds: {', '.join(unsaved[:5])}",
            why="nobody can tell whether they are as they were",
            path="repos",
        )


def _snapshot_is_there(item: StagePlan) -> Iterator[Finding]:
    if (
        item.layout == "hf"
        and not item.from_hub
        and not (Path(item.source) / "snapshots" / item.revision).is_dir()
    ):
        yield error(
            "reproduce.model" if item.kind == "model" else "reproduce.data",
            f"`{item.repo_id}` at revision {item.revision} is not in the cache",
            fix="run `jobspec stage` to fetch it",
            path=item.kind.replace("dataset", "data"),
        )
