"""`stage --images`: the container images of a spec, in the site's cache of images."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from jobspec.cli import output
from jobspec.finding import fail, visible
from jobspec.planning.image_stage import ImageItem, bring_image, bring_image_at, image_item
from jobspec.runtime.staging import image_import

if TYPE_CHECKING:
    from jobspec.plan import CachedImage, ContainerPlan
    from jobspec.planning.resolve import Resolved
    from jobspec.runtime.staging.image_import import Brought
    from jobspec.spec.containers import Container


def stage_images(args: argparse.Namespace, resolved: Resolved) -> int:
    """Say what the cache has of each image, and import it unless `--check` only looks. The exit code."""
    given, planned = resolved.spec.containers, resolved.ready_plan.containers
    # A site without containers has a plan without those of services. Containers of one image are one here.
    both = zip(given, planned, strict=False)
    pairs = {of_spec.image: (of_spec, at, one) for (_, of_spec), (at, one) in both}
    of_registry = [pair for pair in pairs.values() if pair[2].cached or not pair[2].image.startswith("/")]
    found = [_stage(args, resolved, *pair) for pair in of_registry or pairs.values()]
    if args.json:
        told = [_as_json(item, image) for item, image in found]
        output.print_json(told if len(told) > 1 else told[0])
    for item, image in [] if args.json else found:
        if image is None:
            print(f"{item.reference}: MISSING in {item.folder}")
        else:
            print(visible(f"{item.reference}: {image.file}, {output.size(image.bytes)}, {image.digest}"))
    return 0 if all(image for _, image in found) else 1


def _stage(
    args: argparse.Namespace, resolved: Resolved, of_spec: Container, at: str, container: ContainerPlan
) -> tuple[ImageItem, CachedImage | None]:
    item, image = _item(resolved, at, container), container.cached
    of_lock = (of_spec.image or "").startswith("/")  # it names the file of one import
    if not (args.check or of_lock):
        brought = _bring(args, resolved, item)
        image = brought.image
        _say_how(item, brought)
    return item, image


def _item(resolved: Resolved, at: str, container: ContainerPlan) -> ImageItem:
    """Raises: JobspecError for an image that is not imported to a cache."""
    plan, site = resolved.ready_plan, resolved.cluster.profile.container
    item = image_item(container.source_tag if container.cached else container.image, site)
    if item is not None:
        return item
    if site.runtime == "none":
        what = f"the site profile `{plan.cluster}` starts no containers"
        raise fail("stage.no-image", what, fix="use one whose `container.runtime` is not `none`")
    if not container.image:
        raise fail("stage.no-image", "the run has no image", fix="set `container.image`", path="container")
    image_import.runtime_of_files(site.runtime)
    if not site.image_cache:
        what = f"the site profile `{plan.cluster}` has no image cache"
        fix = "set `container.image_cache` in it to a folder that all nodes see"
        raise fail("stage.image-cache", what, fix=fix)
    what = f"`{container.image}` is no image of a registry that can be imported"
    why, fix = "its name has a user, or is of another kind than Docker's", "name it"
    if container.image.startswith("/"):
        why = "a file or a folder is used where it lies"
        fix = "nothing is to be done; an image to import is named"
    fix += " like `registry.example#rl/trainer:1.0`"
    raise fail("stage.image-kind", what, why, fix, path=f"{at}container.image")


def _bring(args: argparse.Namespace, resolved: Resolved, item: ImageItem) -> Brought:
    elsewhere, timeout_s = resolved.cluster.elsewhere, args.timeout * 3600
    if args.job and elsewhere is not None:
        what = f"a job cannot be started from here: the cluster is behind `{elsewhere.where}`"
        raise fail("stage.image-elsewhere", what, fix=f"run this command on `{elsewhere.where}`")
    if args.job:
        from jobspec.launchers.function_jobs.stage import bring_image_there

        return bring_image_there(resolved.cluster.profile, item, timeout_s)
    if elsewhere is not None:
        return bring_image_at(elsewhere, item, timeout_s, _say)
    return bring_image(item, timeout_s, _say)


def _say(text: str) -> None:
    """On the terminal: other users and a login node have a part in it."""
    print(visible(text), file=sys.stderr, flush=True)


def _say_how(item: ImageItem, brought: Brought) -> None:
    output.print_findings(brought.findings)
    if brought.before:
        digest = brought.image.digest
        _say(f"`{item.reference}` was {brought.before} and is {digest} now; both files are kept")


def _as_json(item: ImageItem, image: CachedImage | None) -> dict[str, object]:
    if image is None:
        return {"reference": item.reference, "present": False}
    found = {"digest": image.digest, "file": image.file, "sha256": image.sha256, "bytes": image.bytes}
    return {"reference": item.reference, "present": True, **found}
