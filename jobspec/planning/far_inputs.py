"""Image, model and data of a spec whose cluster is behind `access.login`, as its login node sees them.

The same question that asks for the checkouts asks for them (`elsewhere`). Of a model the three small files
that rules read come along, and lie in a folder of this machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobspec.finding import Finding, warning
from jobspec.plan import CachedImage, StagePlan, build
from jobspec.planning.far_side import MODEL_TEXTS
from jobspec.runtime.base.safe_write import write_text

if TYPE_CHECKING:
    from jobspec.planning.image_stage import ImageItem


@dataclass(frozen=True)
class FarInput:
    """One path of the cluster. `why` says why it is not there. `folder` has a model's small files.

    `images` are imports of a registry's image, newest first.
    """

    path: str
    where: str
    why: str = ""
    commit: str = ""
    digest: str = ""
    folder: Path | None = None
    findings: tuple[Finding, ...] = ()
    images: tuple[CachedImage, ...] = ()

    @property
    def there(self) -> bool:
        return not self.why


FarInputs = Mapping[str, FarInput]


def questions(
    stage: Iterable[StagePlan], images: Iterable[str], of_cache: Iterable[ImageItem | None] = ()
) -> list[dict[str, Any]]:
    """What the login node is asked, each path once; of `of_cache`, what its image cache has."""
    asked: dict[str, dict[str, Any]] = {image: {"path": image, "kind": "image"} for image in images}
    for image in filter(None, of_cache):
        named = {key: getattr(image, key) for key in ("folder", "reference", "suffix")}
        asked[image.key] = {"path": image.key, "kind": "cache", **named}
    for item in stage:
        if not item.from_hub:
            keys = ("kind", "layout", "revision", "allow", "ignore", "require")
            asked[item.source] = {"path": item.source, **{key: getattr(item, key) for key in keys}}
    return list(asked.values())


def answered(
    asked: Iterable[Mapping[str, Any]], seen: Iterable[Mapping[str, Any]], where: str, state: Path
) -> dict[str, FarInput]:
    """The answers by path; `state` is this machine's folder for what was seen of that site."""
    made = {}
    for question, answer in zip(asked, seen, strict=True):
        path = str(question["path"])
        findings = tuple(Finding.from_json(item) for item in answer.get("findings", ()))
        folder = _kept(answer.get("texts") or {}, state / "inputs")
        why, commit, digest = (str(answer.get(key, "")) for key in ("why", "commit", "digest"))
        images = tuple(build(CachedImage, item["image"]) for item in answer.get("images", ()))
        made[path] = FarInput(path, where, why, commit, digest, folder, findings, images)
        for image, item in zip(images, answer.get("images", ()), strict=True):
            made[image.file] = FarInput(image.file, where, digest=str(item["digest"]))
    return made


def _kept(texts: Mapping[str, str], parent: Path) -> Path | None:
    if not texts:
        return None
    digest = hashlib.sha256(repr(sorted(texts.items())).encode(errors="surrogateescape")).hexdigest()
    folder = parent / digest[:24]
    for name in MODEL_TEXTS:  # of no other name: it would be a path of this machine
        if name in texts and not (folder / name).is_file():
            write_text(folder / name, texts[name])
    return folder


def missing_there(stage: Iterable[StagePlan], far: FarInputs) -> Iterator[Finding]:
    """A warning for each model or data set that is not whole on the cluster."""
    for item in stage:
        seen = far.get(item.source)
        errors = [finding for finding in seen.findings if finding.is_error] if seen is not None else []
        if seen is None or item.from_hub or (seen.there and not errors):
            continue
        name = f"the {item.kind} `{item.repo_id or item.name}`"
        what = f"`{item.source}` {seen.why} on `{seen.where}`"
        why = f"{name} is read from there"
        if errors:
            what = f"{name} on `{seen.where}` is not whole: {errors[0].what}"
            why = errors[0].why + (f"; and {len(errors) - 1} more" if len(errors) > 1 else "")
        fix = f"run `jobspec stage` on `{seen.where}`, or here `jobspec stage --job`"
        yield warning(
            "stage.missing",
            what,
            why,
            fix if item.repo_id else "check the path: it is one of the cluster's",
            path="model" if item.kind == "model" else "data",
        )
