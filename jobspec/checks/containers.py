"""Image and mounts: what each container runtime can express, and whether the run's folders are visible."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from msgspec import structs

from jobspec.disk import is_file
from jobspec.finding import Finding, error, warning
from jobspec.plan import NOT_PINNED, Plan
from jobspec.runtime.staging import image_cache
from jobspec.spec.job import JobSpec
from jobspec.spec.site import ClusterProfile
from jobspec.units import is_below

# Characters that separate mounts, or source and target, in the runtime's own option.
SEPARATORS = {
    "pyxis": ":,",
    "apptainer": ":,",
    "podman": ":,",
    "charliecloud": ":",
    "bubblewrap": "",
    "oci": "",
}
NEEDS_FOLDER = ("bubblewrap", "oci")
# A registry's host stands before the first slash and has a dot or a port; Docker's library has neither.
REGISTRY_SLASH = re.compile(r"(?P<host>[\w-]+(\.[\w-]+)+(:\d+)?|localhost:\d+)/(?P<rest>.+)")


def image_is_given(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    container = plan.container
    if container.runtime == "none":
        if spec.container.image:
            yield warning(
                "container.image-unused",
                f"`{spec.container.image}` is not used: `{plan.cluster}` runs on bare nodes",
                why="`container.runtime` of the site profile is `none`",
                fix="use a site profile with a container runtime, or remove the image",
                path="container.image",
            )
    elif not container.image:
        yield error(
            "container.image-missing",
            f"`{plan.cluster}` runs everything in a container, and the spec names no image",
            why=f"`container.runtime` of the site profile is `{container.runtime}`",
            fix="set `container.image`",
            path="container",
        )


def image_has_the_runtimes_form(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    runtime, image = plan.container.runtime, plan.container.image
    if not image or runtime == "none":
        return
    slash = REGISTRY_SLASH.fullmatch(image)
    if runtime == "pyxis" and slash and "#" not in image:
        yield error(
            "container.registry-form",
            f"pyxis takes `{image}` for a repository on Docker Hub",
            why="pyxis separates registry and repository by `#` (pyxis#168: otherwise 401 from Docker Hub)",
            fix=f"write `{slash['host']}#{slash['rest']}`",
            path="container.image",
        )
    if image.startswith("-"):
        yield error(
            "container.image-form",
            f"`{image}` would be read as an option",
            fix="name an image",
            path="container.image",
        )
    if runtime in NEEDS_FOLDER and not image.startswith("/"):
        kind = "an OCI bundle's folder" if runtime == "oci" else "a folder with a root file system"
        yield error(
            "container.image-form",
            f"`{runtime}` needs {kind}, and `{image}` is no path",
            fix="give an absolute path, or one that starts with `./`",
            path="container.image",
        )


def image_is_pinned(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    """A tag means another image once somebody pushes it anew; the lock can only say so."""
    container = plan.container
    if (
        (container.pin != NOT_PINNED and not container.by_tag)
        or container.runtime in NEEDS_FOLDER
        or container.image.startswith("-")
    ):
        return
    _, mark, tag = re.split(r"[/#]", container.image)[-1].partition(":")
    latest = not mark or tag == "latest"
    if container.by_tag and not latest:
        return  # the lock has its digest
    kept = _kept_image(container.image, profile.container.image_cache or "")
    fix = "name an image file, with `container.source_tag` for where it is from, or a digest (`@sha256:…`)"
    if profile.container.image_cache and container.runtime in image_cache.SUFFIXES:
        fix = "run `jobspec stage SPEC --images`: the lock then has the file of this very image"
    yield warning(
        "container.image-latest" if latest else "container.image-tag",
        f"`{container.image}` is {'whatever was pushed last' if latest else 'a tag'}, not one known image",
        why="it may be another image at the next start, and no lock can bring this one back",
        fix=f"name the file that the site has of it, `{kept}`" if kept else fix,
        path="container.image",
    )


def _kept_image(image: str, cache: str) -> str:
    """The file that `enroot import` made of `image` in the site's folder, or an empty string."""
    name = re.sub("[/:]", "+", image.removeprefix("docker://").rpartition("#")[2]) + ".sqsh"
    return f"{cache}/{name}" if cache and is_file(f"{cache}/{name}") else ""


def source_tag_is_of_a_file(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    image = plan.container.image
    if plan.container.source_tag and image and not image.startswith("/"):
        yield error(
            "container.source-tag",
            f"`container.source_tag` says what an image file was made from, and `{image}` is no file",
            fix="remove `source_tag`, or name the file in `container.image`",
            path="container.source_tag",
        )


def mounts_are_made(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    if plan.container.runtime == "none" and any(m.source != m.target for m in plan.container.mounts):
        yield warning(
            "container.mounts-unused",
            f"nothing is mounted: `{plan.cluster}` runs on bare nodes",
            fix="use the paths of the node, or a site profile with a container runtime",
            path="container.mounts",
        )


def mounts_can_be_expressed(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    runtime = plan.container.runtime
    separators = SEPARATORS.get(runtime, "")
    for mount in plan.container.mounts:
        bad = sorted({char for char in mount.source + mount.target if char in separators})
        if bad:
            yield error(
                "container.mount-characters",
                f"`{runtime}` cannot mount `{mount.source}`: it contains `{bad[0]}`",
                why=f"`{runtime}` separates its mounts by that character and knows no escape",
                fix="rename the folder, or mount a parent of it",
                path="container.mounts",
            )
    if runtime == "charliecloud" and any(mount.read_only for mount in spec.container.mounts):
        yield warning(
            "container.mount-writable",
            "charliecloud makes every mount writable",
            why="ch-run knows no read-only mounts",
            fix="rely on the files' own permissions",
            path="container.mounts",
        )


def run_folders_are_visible(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    """Later mounts hide earlier ones: the spec's last mount over a path decides."""
    if plan.container.runtime == "none":
        return
    for name, path in (("runs", plan.runs), ("node_local", plan.node_local)):
        over = [m for m in plan.container.mounts[: len(spec.container.mounts)] if is_below(path, m.target)]
        if over and (over[-1].source != over[-1].target or over[-1].read_only):
            yield error(
                "container.mount-hides-run",
                f"the mount at `{over[-1].target}` hides `{path}` from the container",
                why=f"the run writes to `paths.{name}`, under the same name inside and outside",
                fix="choose another target, or mount the folder writable under its own name",
                path="container.mounts",
            )


def workdir_is_absolute(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    workdir = plan.container.workdir
    if workdir and not workdir.startswith("/"):
        yield error(
            "container.workdir",
            f"`{workdir}` is no absolute path",
            fix=f"write `/{workdir}`, as seen in the container",
            path="container.workdir",
        )


def services_have_such_containers(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    """The same rules over the containers of services."""
    # A site without containers has a plan without those of services.
    for (at, one), (_, given) in zip(plan.containers[1:], spec.containers[1:], strict=False):
        of_plan, of_spec = replace(plan, container=one), structs.replace(spec, container=given)
        for finding in (finding for rule in OF_ONE for finding in rule(of_plan, of_spec, profile)):
            yield replace(finding, path=f"{at}{finding.path}")


OF_ONE = (
    image_is_given,
    image_has_the_runtimes_form,
    image_is_pinned,
    source_tag_is_of_a_file,
    mounts_are_made,
    mounts_can_be_expressed,
    run_folders_are_visible,
    workdir_is_absolute,
)
RULES = (*OF_ONE, services_have_such_containers)
