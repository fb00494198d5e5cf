"""An image of a registry and the site's cache of images: what the cache has, and how it gets there."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from jobspec.finding import Finding, JobspecError, fail
from jobspec.plan import CachedImage, build
from jobspec.planning.registry import Tag, is_this_machine, parse_reference, place_of, tag_digest
from jobspec.runtime.staging import image_cache, image_import

if TYPE_CHECKING:
    from jobspec.runtime.staging.image_import import Brought
    from jobspec.spec.find_site import Elsewhere
    from jobspec.spec.site import SiteContainer

ASK_MORE_S = 60.0  # for the way to a login node and back


@dataclass(frozen=True)
class ImageItem:
    """The image of a spec, where the site's cache may have it. `runtime` decides about the kind of file."""

    tag: Tag
    runtime: str
    folder: str

    @property
    def suffix(self) -> str:
        return image_cache.SUFFIXES[self.runtime]

    @property
    def reference(self) -> str:
        return self.tag.reference

    @property
    def key(self) -> str:
        """Names the question what a login node's cache has of it."""
        return f"{self.folder}/{self.reference}{self.suffix}"

    def images(self) -> list[CachedImage]:
        """What the cache has of it as this machine sees it, newest first."""
        return image_cache.images(self.folder, self.reference, self.suffix)


def image_item(image: str, site: SiteContainer) -> ImageItem | None:
    """The image as the site's cache may have it; None for a file, or on a site without such a cache."""
    if site.runtime not in image_cache.SUFFIXES or not site.image_cache or not image:
        return None
    tag = parse_reference(image, site.registry or "")
    return ImageItem(tag, site.runtime, site.image_cache) if tag is not None else None


def bring_image(item: ImageItem, timeout_s: float, say: Callable[[str], None]) -> Brought:
    """Import the image, by the digest that the registry tells first. Raises: JobspecError."""
    program, deadline = image_import.runtime_of_files(item.runtime), time.monotonic() + timeout_s
    digest = item.tag.digest or _digest(item, program, deadline, say)
    wanted = image_import.Wanted(
        item.reference, item.tag.name, digest, _uri(item.tag, program, digest), is_this_machine(item.tag.host)
    )
    return image_import.bring(wanted, item.runtime, item.folder, deadline, say)


def bring_image_at(
    elsewhere: Elsewhere, item: ImageItem, timeout_s: float, say: Callable[[str], None]
) -> Brought:
    """`bring_image` on a cluster's login node. Raises: JobspecError."""
    say(f"importing on `{elsewhere.where}`; what is said there comes at the end")
    one = {"tag": asdict(item.tag), "runtime": item.runtime, "folder": item.folder, "timeout_s": timeout_s}
    (answer,) = elsewhere.ask({"images": [one]}, timeout_s + ASK_MORE_S)["images"]
    if answer["findings"]:
        raise JobspecError(*(Finding.from_json(finding) for finding in answer["findings"]))
    for line in answer["said"]:
        say(str(line))
    told = tuple(Finding.from_json(finding) for finding in answer["told"])
    image = build(CachedImage, answer["image"])
    return image_import.Brought(image, bool(answer["imported"]), str(answer["before"]), told)


def _digest(item: ImageItem, program: str, deadline: float, say: Callable[[str], None]) -> str:
    """The digest of a tag, which anybody may be told, or who has a login of Enroot. Raises: JobspecError."""
    digest, why = tag_digest(item.tag)
    if digest:
        return digest
    if program == "enroot":
        image_import.program_for(item.runtime)
        words = ["enroot", "digest", _uri(item.tag, program)]
        _, text = image_import.output(words, is_this_machine(item.tag.host), deadline, say)
        if found := re.search(r"^sha256:[0-9a-f]{64}$", text, re.MULTILINE):
            return found.group()
        raise image_import.complaint(item.reference, program, f"{why}\n{text}")
    problem = image_import.complaint(item.reference, program, why)
    rule = f"stage.{image_import.REFUSED}"
    if problem.findings[0].rule == rule:
        what = f"which image `{item.reference}` is cannot be asked without a login"
        fix = f"name its digest in the spec, `{item.tag.name}@sha256:…`: {program} logs in by itself"
        raise fail(rule, what, why, fix)
    raise problem


def _uri(tag: Tag, program: str, digest: str = "") -> str:
    """The image for the program: all versions of Enroot understand `#` behind the registry."""
    host, name = place_of(tag)
    end = f"@{digest}" if digest else f":{tag.tag}"
    return f"docker://{host}{'#' if program == 'enroot' else '/'}{name}{end}"
