"""The step's container as the plan has it: its image, its interpreter, its mounts."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.disk import is_file, is_folder
from jobspec.finding import Finding, warning
from jobspec.plan import NOT_PINNED, CachedImage, ContainerPlan, Mount, Plan
from jobspec.planning.far_inputs import FarInputs
from jobspec.planning.image_stage import ImageItem, image_item
from jobspec.planning.paths import absolute
from jobspec.planning.provenance import image_digest
from jobspec.planning.registry import parse_reference, parse_tag, tag_digest
from jobspec.units import is_below

if TYPE_CHECKING:
    from jobspec.spec.containers import Container
    from jobspec.spec.site import ClusterProfile, SiteContainer

IMAGE_FILES = (".sqsh", ".sqfs", ".squashfs", ".sif")


def settle_container(
    of_spec: Container,
    profile: ClusterProfile,
    base: Path,
    env: Mapping[str, str],
    far: FarInputs | None = None,
) -> ContainerPlan:
    """A container of a spec on a site, with its own mounts; `mounts_for` adds those of the plan.

    Without `container.python`, a local run on the bare machine uses jobspec's own interpreter.
    """
    site = profile.container
    bare = site.runtime == "none"
    on_this_machine = profile.scheduler == "local" and bare
    image = "" if bare else settled_image(of_spec.image or "", site.image_cache, base, env, far)
    cached = cached_image(image, of_spec.source_tag or "", site, far)
    image = cached.file if cached else image
    digest = image_digest(image) if far is None or not image.startswith("/") else ""
    if far is not None and image in far:
        digest = far[image].digest
    return ContainerPlan(
        runtime=site.runtime,
        image=image,
        python=of_spec.python or (sys.executable if on_this_machine else "python3"),
        mounts=tuple(Mount(absolute(m.source, base, env), m.target, m.read_only) for m in of_spec.mounts),
        env=dict(sorted({**profile.env, **of_spec.env}.items())),
        workdir=of_spec.workdir or "",
        mount_home=site.mount_home,
        remap_root=site.remap_root,
        source_tag="" if bare else cached.reference if cached else of_spec.source_tag or "",
        digest=digest,
        cached=cached,
    )


def cached_image(
    image: str, source_tag: str, site: SiteContainer, far: FarInputs | None = None
) -> CachedImage | None:
    """The last import that the site's cache has of a registry's image, or the one of a lock's file."""
    is_file_name = image.startswith("/")
    item = image_item(source_tag if is_file_name else image, site)
    if item is None:
        return None
    if far is None:
        images: Sequence[CachedImage] = item.images()
    else:
        images = far[item.key].images if item.key in far else ()
    return next((one for one in images if not is_file_name or one.file == image), None)


def about_the_cache(container: ContainerPlan, profile: ClusterProfile) -> list[Finding]:
    """A warning where nodes would import an image that the site's cache could have."""
    item = image_item(container.image, profile.container)
    if item is None:
        return []
    found = warning(
        "container.not-cached",
        f"`{item.folder}` has no import of `{item.reference}`",
        why="each node fetches and unpacks it by itself when the run starts, all at once",
        fix="run `jobspec stage SPEC --images`: it is imported once, and runs start from its file",
        path="container.image",
    )
    return [found]


def with_tag_digest(container: ContainerPlan, profile: ClusterProfile) -> tuple[ContainerPlan, list[Finding]]:
    """The container with the digest that its image's tag has now, or a warning why that is not known."""
    site, tag = profile.container, parse_tag(container.image)
    if container.cached and site.ask_registry:
        return container, moved_tag(container.cached)
    if container.pin != NOT_PINNED or tag is None or not site.ask_registry:
        return container, []
    tag = replace(tag, host=tag.host or site.registry or "")
    if not tag.host:
        return container, []
    digest, why = tag_digest(tag)
    if digest:
        return replace(container, digest=digest, by_tag=True), []
    found = warning(
        "container.tag-unknown",
        f"which image `{container.image}` is now is not known",
        why=why,
        fix="check the name; without a network set `container.ask_registry: false` in the site profile",
        path="container.image",
    )
    return container, [found]


def moved_tag(cached: CachedImage) -> list[Finding]:
    """A warning where the registry has another image than the cache under the same tag."""
    tag = parse_reference(cached.reference, "")
    digest = "" if tag is None or tag.digest else tag_digest(tag)[0]
    if not digest or digest == cached.digest:
        return []
    found = warning(
        "container.tag-moved",
        f"`{cached.reference}` is another image now, and the run starts from the one that was imported",
        why=f"the cache has {cached.digest}, and the registry {digest}",
        fix="run `jobspec stage SPEC --images` for the new one; both are kept",
        path="container.image",
    )
    return [found]


def image_questions(
    container: Container, profile: ClusterProfile, base: Path, env: Mapping[str, str]
) -> tuple[list[str], ImageItem | None]:
    """What a login node is asked: where the image of a spec may lie as a file, and as an import."""
    image, cache = container.image or "", profile.container.image_cache or ""
    if profile.container.runtime == "none" or not is_image_path(image):
        return [], image_item(image, profile.container)
    cached = [f"{cache}/{image}"] if cache and not image.startswith(("/", ".", "~")) else []
    of_lock = container.source_tag if image.startswith("/") else None
    return [*cached, absolute(image, base, env)], image_item(of_lock or "", profile.container)


def is_image_path(image: str) -> bool:
    return image.startswith(("/", "./", "../", "~")) or image.endswith(IMAGE_FILES)


def settled_image(
    image: str, cache: str | None, base: Path, env: Mapping[str, str], far: FarInputs | None = None
) -> str:
    """An absolute path for an image that is a file or a folder; a registry's name stays as it is.

    Pyxis takes `x.sqsh` without a slash for a registry image (pyxis#127): a file's path is always absolute.
    """
    is_path = is_image_path(image)
    cached = Path(cache or "/nonexistent") / image
    is_name = is_path and not image.startswith(("/", ".", "~"))
    if is_name and (is_file(cached) if far is None else str(cached) in far and far[str(cached)].there):
        return str(cached)
    return absolute(image, base, env) if is_path or (image and is_folder(base / image)) else image


def mounts_for(plan: Plan, container: ContainerPlan) -> tuple[Mount, ...]:
    """The container's own mounts, then an identity mount for each folder of the run that they do not cover.

    Rendering mounts the run directory itself.
    """
    for path in (plan.node_local, plan.hf_home, plan.checkpoint_dir):
        container = with_mount(container, path)
    for repo in plan.repos:  # Python writes __pycache__, drivers their outputs
        container = with_mount(container, repo.path)
    if plan.upstream is not None:
        container = with_mount(container, plan.upstream.root)
    for item in plan.stage:
        if item.from_hub:
            continue
        container = with_mount(container, item.source, read_only=True)
    return container.mounts


def with_mount(container: ContainerPlan, path: str, read_only: bool = False) -> ContainerPlan:
    """The container with the host's `path` visible under the same name; unchanged where it already is."""
    if container.runtime == "none" or not path or any(covers(m, path, read_only) for m in container.mounts):
        return container
    return replace(container, mounts=(*container.mounts, Mount(path, path, read_only)))


def covers(mount: Mount, path: str, read_only: bool) -> bool:
    """Whether `mount` shows the host's `path` under the same name, writable unless `read_only`."""
    same_name = mount.source == mount.target
    return same_name and (read_only or not mount.read_only) and is_below(path, mount.target)
